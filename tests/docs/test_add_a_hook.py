"""The page's hook is short, keeps to the budget, obeys the chunk law and resumes exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.telemetry.jsonl import read_rows
from etude.testing import check_workflow
from etude.training import session
from tests.docs.own_files import own_files
from tests.docs.pages import ROOT
from tests.runs_compared import assert_same_run, resume, stopped_after

PAGE = ROOT / "docs/add-a-hook.md"
SPEC = "CartPole-v1:by_episode.ByEpisode"
SMALL = ("network.q.hidden_dims=[8]", "algorithm.batch_size=8", "experiment.device=cpu", "experiment.compile=off",
         "evaluation.episodes=1", "environment.num_envs=1")  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with own_files(PAGE, tmp_path, monkeypatch) as found:
        yield found


def _train(folder: Path) -> session.Run:
    composition = compose(SPEC, file=folder / "by_episode.yaml", words=SMALL)
    with open("/dev/null", "w") as nowhere:
        return session.train(composition, root=folder / "runs", quiet=True, stream=nowhere).run


def test_a_hook_is_a_few_lines(files: dict[str, str]) -> None:
    lines = [line for line in files["by_episode.py"].splitlines() if line.strip() and not line.startswith("from")]
    assert len(lines) <= 12


def test_its_phases_run_as_the_page_says_and_resume_exactly(tmp_path: Path) -> None:
    whole = _train(tmp_path)
    counters = whole.summary["counters"]
    assert 1000 <= counters["env_steps"] < 1500, "no more than the rest of an episode"
    last, rows = counters["updates"] - 200, read_rows(whole.metrics_path)
    playing = [row for row in rows if row["updates"] <= last]
    assert rows[-1]["updates"] == counters["updates"]
    assert all(row["env_steps"] == counters["env_steps"] for row in rows if row["updates"] > last)
    assert last == pytest.approx((counters["env_steps"] - 100) / 2, abs=30), "none is taken before learning starts"
    assert rows[-1]["hp/learning_rate"] < playing[-1]["hp/learning_rate"] < 1e-3, "it goes on falling while it rests"
    with stopped_after(len(rows) // 2):
        stopped = _train(tmp_path)
    assert stopped.status == "interrupted"
    resume(stopped)
    assert_same_run(whole, stopped)


def test_it_obeys_the_chunk_law() -> None:
    phases = "training.phases=[{name: play, hooks: [collect_episode, {update: {ratio: 0.5}}]}]"
    check_workflow("by_episode.ByEpisode", words=[*SMALL, "algorithm.learning_starts=50", phases],
                   only=["chunk_law"], steps=400).raise_if_failed()  # fmt: skip

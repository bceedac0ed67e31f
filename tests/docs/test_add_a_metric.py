"""Each of the page's metrics is a few lines, is in every row and changes nothing about the run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.telemetry.jsonl import read_rows
from tests.docs.own_files import own_files
from tests.docs.pages import ROOT
from tests.runs_compared import rows, train

PAGE = ROOT / "docs/add-a-metric.md"
SMALL = ("network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]", "environment.num_envs=4", "experiment.device=cpu",
         "algorithm.rollout_steps=16", "algorithm.batch_size=32", "algorithm.epochs=1", "training.total_steps=256",
         "evaluation.every_steps=0", "experiment.compile=off", "logging.every_steps=64")  # fmt: skip
WAYS = {
    "train/log_prob": ("CartPole-v1:sure_ppo.SurePPO",),
    "collect/angle": ("CartPole-v1:ppo", "environment.wrappers=[{id: pole_angle.PoleAngle}]"),
    "policy/norm": ("CartPole-v1:ppo", "training.callbacks=[{type: weight_norm.WeightNorm}]"),
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with own_files(PAGE, tmp_path, monkeypatch) as found:
        yield found


def test_each_is_a_few_lines(files: dict[str, str]) -> None:
    for text in (text for name, text in files.items() if name.endswith(".py")):
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("import", "from"))]
        assert len(lines) <= 8


@pytest.mark.parametrize("name", WAYS)
def test_it_is_logged_and_changes_nothing(name: str, tmp_path: Path) -> None:
    spec, *words = WAYS[name]
    run = train(spec, tmp_path / "with", *SMALL, *words)
    logged = read_rows(run.metrics_path)
    assert len(logged) == 4
    assert all(math.isfinite(row[name]) for row in logged)
    assert name in (run.path / "metrics.csv").read_text().splitlines()[0]
    # An algorithm that is chosen by where it is has no presets.
    other = "CartPole-v1:ppo" if spec.endswith(":ppo") else "CartPole-v1:etude.workflows.ppo.PPO"
    plain = train(other, tmp_path / "without", *SMALL)
    assert [{key: value for key, value in row.items() if key != name} for row in rows(run)] == rows(plain)

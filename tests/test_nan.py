"""Weights that become NaN: the run stops, or skips the step, or goes back; never goes on with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.errors import NonFiniteError
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.workflows.ppo import PPO
from tests.runs_compared import train

WORDS = ("training.total_steps=4000", "algorithm.epochs=2", "evaluation.episodes=2", "checkpoint.every_steps=1000")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the n-th rollouts rewards that are not numbers."""

    def give(*rollouts: int) -> None:
        original, calls = PPO._prepare, 0

        def prepare(self: PPO, columns: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls in rollouts:
                columns["reward"][3, 2] = torch.nan
            return original(self, columns)

        monkeypatch.setattr(PPO, "_prepare", prepare)

    return give


def test_by_default_the_run_stops_and_its_last_save_is_whole(poison: Any, tmp_path: Path) -> None:
    poison(6)
    with pytest.raises(NonFiniteError, match=r"actor.layers.0.weight is NaN at 1,536 environment steps and 12 updates"):
        train("CartPole-v1:ppo", tmp_path, *WORDS)
    run = Run.resolve("@last", tmp_path)
    assert run.status == "failed"
    assert "is NaN" in run.record["stop_reason"]
    saved = run.checkpoints().newest_whole()
    assert saved.counters["env_steps"] == 1024
    assert all(torch.isfinite(weight).all() for weight in saved.load(["policy"])["policy"].values())  # type: ignore[union-attr]


@pytest.mark.parametrize("words", [(), ("algorithm.target_kl=0.05",), ("algorithm.optimizer={type: sgd}",)])
def test_skip_leaves_the_step_out_and_counts_it(poison: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    poison(6)
    run = train("CartPole-v1:ppo", tmp_path, *WORDS, *words, "training.on_nan=skip", "logging.every_steps=256")
    assert run.status == "finished"
    skipped = {int(row["env_steps"]): row["train/skipped"] for row in read_rows(run.metrics_path) if "train/skipped" in row}
    assert {steps for steps, share in skipped.items() if share} == {1536}
    assert skipped[1536] == 1


def test_rollback_goes_back_to_the_last_save_and_takes_another_course(
    poison: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(6)
    run = train("CartPole-v1:ppo", tmp_path, *WORDS, "training.on_nan=rollback", "logging.every_steps=256")
    assert run.status == "finished"
    steps = [row["env_steps"] for row in read_rows(run.metrics_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] == 4000
    assert "000" in (run.logs / "rollbacks.jsonl").read_text()
    assert "rolled back to checkpoint" in run.log_path.read_text()
    # The rollout after the save is gathered with other random numbers than before.
    again = [row for row in read_rows(run.logs / "superseded.jsonl") if row["env_steps"] == 1280]
    now = [row for row in read_rows(run.metrics_path) if row["env_steps"] == 1280]
    assert len(again) == len(now) == 1
    assert again[0]["train/loss"] != now[0]["train/loss"]


def test_a_run_that_breaks_every_time_stops_after_three_rollbacks(poison: Any, tmp_path: Path) -> None:
    poison(*range(6, 100))
    with pytest.raises(NonFiniteError):
        train("CartPole-v1:ppo", tmp_path, *WORDS, "training.on_nan=rollback")
    run = Run.resolve("@last", tmp_path)
    assert run.status == "failed"
    assert len((run.logs / "rollbacks.jsonl").read_text().splitlines()) == 3

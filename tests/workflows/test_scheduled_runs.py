"""A schedule's value is that of the moment when a cycle began: for collecting a rollout and for learning from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.telemetry.jsonl import read_rows
from etude.workflows.td3 import TD3
from tests.runs_compared import train
from tests.workflows.tiny_replay_runs import start

PPO = ("environment.num_envs=2", "algorithm.rollout_steps=16", "algorithm.batch_size=32", "algorithm.epochs=1",
       "algorithm.learning_rate=lin_1e-2", "evaluation.every_steps=0")  # fmt: skip


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:a2c", "CartPole-v1:reinforce"])
def test_a_run_of_one_rollout_learns(spec: str) -> None:
    # Defect 32: its only update was at the end of the budget, where the rate is 0.
    words = ("environment.num_envs=2", "algorithm.rollout_steps=64", "training.total_steps=128", "evaluation.every_steps=0")
    more = ("algorithm.batch_size=64", "algorithm.epochs=1") if spec.endswith(":ppo") else ()
    orchestrator = start(spec, (*words, *more, "algorithm.learning_rate=lin_1e-2"))
    before = [parameter.clone() for parameter in orchestrator.workflow.actor.parameters()]  # type: ignore[attr-defined]
    (row,) = [*orchestrator.rows()]
    assert row["hp/learning_rate"] == pytest.approx(1e-2)
    assert not all(map(torch.equal, before, orchestrator.workflow.actor.parameters()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("total", [128, 100])  # 100: the fourth rollout stays half, and nothing is learnt from it
def test_each_update_has_the_value_at_the_start_of_its_rollout(total: int, tmp_path: Path) -> None:
    words = (*PPO, f"training.total_steps={total}", "logging.every_steps=1")
    rows = [row for row in read_rows(train("CartPole-v1:ppo", tmp_path, *words).metrics_path) if "train/loss" in row]
    rates = [row["hp/learning_rate"] for row in rows]
    assert rates == pytest.approx([1e-2 * (1 - 32 * k / total) for k in range(total // 32)])


def test_the_last_updates_of_a_replay_have_a_rate_too() -> None:
    words = ("algorithm.learning_rate=lin_1e-2", "algorithm.learning_starts=16", "algorithm.batch_size=8",
             "training.total_steps=40", "environment.num_envs=2", "evaluation.every_steps=0",
             "algorithm.train_every=1", "algorithm.gradient_steps=1")  # fmt: skip
    orchestrator = start("Pendulum-v1:td3", words)
    orchestrator.run()
    assert float(orchestrator.workflow.scheduled("learning_rate")) == pytest.approx(1e-2 * 2 / 40)


def test_acting_has_the_value_at_the_start_of_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, act = [], TD3.act

    def noted(self: TD3, *given: Any, **options: Any) -> Any:
        seen.append(float(self.scheduled("exploration_noise")))
        return act(self, *given, **options)

    monkeypatch.setattr(TD3, "act", noted)
    words = ("algorithm.exploration_noise={start: 1.0, end: 0.0}", "algorithm.train_every=5",
             "algorithm.learning_starts=4", "algorithm.batch_size=4",
             "training.total_steps=20", "environment.num_envs=1", "evaluation.every_steps=0")  # fmt: skip
    start("Pendulum-v1:td3", words).run()
    assert seen == pytest.approx([1.0] + [0.75] * 5 + [0.5] * 5 + [0.25] * 5)  # after four steps of warm-up

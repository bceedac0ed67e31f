"""How often a run is evaluated where nobody said: ten times, and less often where that would take longer than training."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.training import assembly
from tests.runs_compared import train


def evaluations(spec: str, total: int, *words: str) -> int:
    config = assembly.resolve(compose(spec, words=[f"training.total_steps={total}", *words]).config)
    assert config.evaluation.every_steps
    return config.training.total_steps // config.evaluation.every_steps


@pytest.mark.parametrize(
    ("spec", "total", "count"),
    [
        ("CartPole-v1:ppo", 100_000, 10),
        ("Pendulum-v1:ppo", 200_000, 10),
        ("CartPole-v1:ppo", 10_000, 10),
        ("CartPole-v1:ppo", 5_000, 5),
        ("CartPole-v1:ppo", 500, 1),
        ("Pendulum-v1:ppo", 500, 1),
        ("Pendulum-v1:ppo", 2_000, 5),
        ("MountainCar-v0:dqn", 1, 1),
    ],
)
def test_short_runs_are_evaluated_less_often(spec: str, total: int, count: int) -> None:
    assert evaluations(spec, total) == count


def test_what_an_evaluation_costs_is_counted() -> None:
    assert evaluations("Pendulum-v1:ppo", 4_000) == 10
    assert evaluations("Pendulum-v1:ppo", 4_000, "evaluation.mode=both") == 5
    assert evaluations("Pendulum-v1:ppo", 4_000, "evaluation.episodes=32") == 5, "sixteen side by side, twice"
    assert evaluations("Pendulum-v1:ppo", 4_000, "environment.max_episode_steps=1000") == 2


def test_what_was_asked_for_is_kept() -> None:
    assert evaluations("Pendulum-v1:ppo", 500, "evaluation.every_steps=50") == 10
    config = assembly.resolve(compose("Pendulum-v1:ppo", words=["evaluation.every_steps=0"]).config)
    assert config.evaluation.every_steps == 0


def test_a_short_run_is_evaluated_once_and_at_its_end(tmp_path: Path) -> None:
    run = train("Pendulum-v1:ppo", tmp_path, "training.total_steps=500", "algorithm.epochs=1")
    from etude.telemetry.jsonl import read_rows

    assert [row["env_steps"] for row in read_rows(run.metrics_path) if "eval/return_mean" in row] == [500]

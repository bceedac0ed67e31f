"""The evaluator by itself: on a checkpoint alone, with an interval of its mean, and as a phase that trains nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import etude
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.orchestration.evaluator import EvaluationResult, Evaluator, confidence_interval, evaluate_episodes
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_state, rows, state, train

TINY = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=2")


def test_it_needs_a_checkpoint_and_nothing_of_training(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY)
    folder = run.checkpoints().find("best").path
    policy, environment = etude.load_policy(str(folder), num_envs=4)
    result = evaluate_episodes(policy, environment, 10, mode="greedy", seed=1)
    assert len(result.returns) == 10
    made: list[int] = []

    def make(num_envs: int):
        made.append(num_envs)
        return make_environment(EnvironmentConfig(id="CartPole-v1"), num_envs=num_envs)

    evaluator = Evaluator(make, episodes=10, modes=("greedy", "sample"), seed=1, device=torch.device("cpu"), num_envs=4)
    metrics = evaluator.evaluate(policy, env_steps=0, updates=0)
    evaluator.close()
    assert made == [4]
    assert metrics["eval/episodes"] == metrics["eval/sample_episodes"] == 10


def test_a_phase_that_only_evaluates_leaves_training_as_it_was(tmp_path: Path) -> None:
    """Bit for bit: every later row and the final state are those of a run without it."""
    first = "{name: first, hooks: [collect, update], duration_steps: 1536}"
    look = "{name: look, type: eval_only, hooks: [evaluate], duration_cycles: 3}"
    rest = "{name: rest, hooks: [collect, update]}"
    words = ("training.total_steps=3072", "algorithm.epochs=2", "evaluation.episodes=3", "logging.every_steps=256")
    looked = train("CartPole-v1:ppo", tmp_path, *words, f"training.phases=[{first}, {look}, {rest}]")
    plain = train("CartPole-v1:ppo", tmp_path, *words, f"training.phases=[{first}, {rest}]")
    assert sum("eval/return_mean" in row and row["env_steps"] == 1536 for row in read_rows(looked.metrics_path)) >= 3
    one, other = state(looked), state(plain)
    assert_same_state(one["policy"], other["policy"])
    assert_same_state(one["rank/0"], other["rank/0"])
    assert_same_state(one["shared"]["workflow"], other["shared"]["workflow"])
    last, reference = rows(looked)[-1], rows(plain)[-1]
    skipped = {"cycles", "eval/return_best"}
    assert {k: v for k, v in last.items() if k not in skipped} == {k: v for k, v in reference.items() if k not in skipped}


def test_the_interval_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, 400)
    low, high = confidence_interval(values)  # type: ignore[misc]
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.05)
    assert high == pytest.approx(values.mean() + half, abs=0.05)
    assert confidence_interval(values) == (low, high)  # no chance in it
    assert confidence_interval(np.full(100, 500.0)) == (500.0, 500.0)
    assert confidence_interval(np.array([1.0])) is None
    assert EvaluationResult(np.array([]), np.array([]), "greedy").confidence_interval() is None


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        low, high = confidence_interval(generator.exponential(3.0, 60), resamples=500)  # type: ignore[misc]
        hits += low <= 3.0 <= high
    assert 86 <= hits <= 100

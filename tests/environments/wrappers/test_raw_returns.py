"""Where wrappers change rewards, what the task itself paid is told beside, in training and in evaluations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etude.environments.make import make_environment
from etude.telemetry.jsonl import read_rows
from etude.using.evaluate import as_json, measure
from etude.using.stored_policy import open_policy
from tests.environments.wrappers.tasks import config_of
from tests.environments.wrappers.test_runs import TINY
from tests.runs_compared import train

HALF = "{id: reward_scale, factor: 0.5}"
PLACES = {
    "around native copies": (f"environment.wrappers=[{HALF}]",),
    "inside copies": (f"environment.wrappers=[{HALF}, sticky_actions]",),
    "both": (f"environment.wrappers=[{HALF}, sticky_actions, {{id: reward_scale, factor: 3}}]",),
    "inside workers": (f"environment.wrappers=[{HALF}, sticky_actions]", "environment.workers=2", "evaluation.every_steps=0"),
}


@pytest.mark.usefixtures("nursery_stays")
@pytest.mark.parametrize("place", PLACES)
def test_both_returns_of_the_same_episodes_are_logged(place: str, tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, *PLACES[place])
    factor = 1.5 if place == "both" else 0.5
    rows = [row for row in read_rows(run.metrics_path) if "collect/return_mean" in row]
    assert len(rows) >= 3
    for row in rows:
        assert row["collect/raw_return_mean"] == row["collect/length_mean"]  # a step of CartPole is worth 1
        assert row["collect/return_mean"] == pytest.approx(factor * row["collect/length_mean"])
        assert "collect/raw_reward" not in row


def test_a_run_whose_rewards_are_the_tasks_own_tells_them_once(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "environment.wrappers=[stack, sticky_actions]")
    assert not [key for row in read_rows(run.metrics_path) for key in row if "raw" in key]


def test_evaluations_measure_the_tasks_own_return_or_have_it_beside(tmp_path: Path) -> None:
    for training_only in ("true", "false"):
        words = f"environment.wrappers=[{{id: reward_scale, factor: 0.5, training_only: {training_only}}}]"
        run = train("CartPole-v1:ppo", tmp_path / training_only, *TINY, words)
        (result, *_) = measure(open_policy(run, "last"), 4).values()
        row = next(row for row in read_rows(run.metrics_path) if "eval/return_mean" in row)
        if training_only == "true":
            assert result.returns.tolist() == result.lengths.tolist()
            assert result.raw_returns is None
            assert row["eval/return_mean"] == row["eval/length_mean"]
            continue
        assert result.returns.tolist() == [0.5 * length for length in result.lengths]
        assert as_json(result)["raw_returns"] == result.lengths.tolist()
        assert row["eval/raw_return_mean"] == row["eval/length_mean"] == 2 * row["eval/return_mean"]


def test_skipped_frames_add_up_what_the_task_paid() -> None:
    config = config_of({"id": "reward_scale", "factor": 0.5}, {"id": "frame_skip", "skip": 3})
    environment = make_environment(replace(config, id="CartPole-v1"), num_envs=2, training=True)
    environment.reset([1, 2])
    step = environment.step(torch.tensor([0, 1]))
    assert step.reward.tolist() == [1.5, 1.5]
    assert step.info["raw_reward"].tolist() == [3.0, 3.0]

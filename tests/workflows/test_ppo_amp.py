"""PPO with a motion prior: a discriminator that tells the motion from the policy's; exact, and refused without a motion."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.errors import ConfigError
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_resumes, train

WORDS = (
    *("environment.num_envs=16", "algorithm.rollout_steps=8", "evaluation.every_steps=0", "experiment.compile=off"),
    "environment.max_episode_steps=40",
)  # fmt: skip


def test_it_resumes_exactly(tmp_path: Path) -> None:
    assert_resumes("quadruped-motion:ppo_amp", tmp_path, *WORDS, "training.total_steps=512", after=2)


def test_the_discriminator_comes_to_tell_the_motion_from_the_policys(tmp_path: Path) -> None:
    run = train("quadruped-motion:ppo_amp", tmp_path, *WORDS, "training.total_steps=5_120")
    rows = [row for row in read_rows(run.metrics_path) if "train/style" in row]
    apart = [row["train/discriminator_of_motion"] - row["train/discriminator_of_policy"] for row in rows]
    assert apart[-1] > apart[0] + 0.5
    assert all(0 <= row["train/style"] <= 1 for row in rows)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("CartPole-v1", "ppo_amp: needs a robot's task with a motion"),
        ("quadruped-flat", "ppo_amp: needs a robot's task with a motion"),
    ],
)
def test_without_a_motion_it_is_refused(environment: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        train(f"{environment}:ppo_amp", tmp_path, "environment.num_envs=8", "training.total_steps=64")

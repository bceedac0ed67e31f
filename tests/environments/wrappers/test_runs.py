"""Whole runs through wrappers: trained, resumed, evaluated and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

import etude
from etude.telemetry.jsonl import read_rows
from etude.using.evaluate import measure
from etude.using.stored_policy import open_policy
from tests.runs_compared import assert_same_run, resume, stopped_after, train

TINY = ("training.total_steps=512", "algorithm.rollout_steps=32", "algorithm.batch_size=0.5", "algorithm.epochs=1",
        "environment.num_envs=4", "evaluation.every_steps=256", "evaluation.episodes=1", "logging.every_steps=128")  # fmt: skip
CHAIN = "{id: noise, std: 0.05}, {id: observation_lag}, {id: action_lag}, {id: reward_scale, factor: 0.5}, stack"
CASES = {
    "around native copies": (f"environment.wrappers=[{CHAIN}]",),
    "inside copies": (f"environment.wrappers=[{CHAIN}, {{id: sticky_actions}}, {{id: time_limit, steps: 40}}]",),
    "inside workers": (f"environment.wrappers=[{CHAIN}, {{id: sticky_actions}}, {{id: history}}]", "environment.workers=2",
                       "evaluation.every_steps=0"),
}  # fmt: skip


@pytest.mark.usefixtures("nursery_stays")
@pytest.mark.parametrize("words", CASES.values(), ids=CASES.keys())
def test_resume_in_the_middle_of_episodes_equals_uninterrupted(words: tuple[str, ...], tmp_path: Path) -> None:
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *TINY, *words)
    with stopped_after(2):
        run = train("CartPole-v1:ppo", tmp_path / "cut", *TINY, *words)
    assert run.status == "interrupted"
    resume(run)
    assert_same_run(whole, run)


def test_a_policy_is_measured_through_the_wrappers_it_was_trained_with(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, *CASES["around native copies"])
    policy, environment = etude.load_policy(str(run.path))
    assert environment.single_observation_space.shape == (4, 4)
    assert policy.stochastic
    results = measure(open_policy(run, "last"), 4)
    for result in results.values():
        # Rewards are scaled in training alone: a step of CartPole is worth 1.
        assert [float(value) for value in result.returns] == [float(value) for value in result.lengths]


def test_skipped_frames_count_as_environment_steps(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "environment.wrappers=[{id: frame_skip, skip: 2}]")
    last = read_rows(run.metrics_path)[-1]
    assert (last["env_steps"], last["decisions"]) == (512, 256)

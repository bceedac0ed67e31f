"""Evaluation: exactly as many episodes as asked, no favour to short ones, and not a trace left in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.orchestration import evaluator as module
from etude.orchestration.evaluator import EvaluationResult, Evaluator, evaluate_episodes
from etude.workflows.base import ActResult, Phase
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import copied, ppo_config, start, state_of

PHASE = Phase("train")
LONG = 60


class Mixed(VectorEnvironment):
    """Episodes of 1 step without reward or of 60 steps with reward 1 at the end, as likely as each other."""

    single_observation_space = gymnasium.spaces.Box(0, 1, (1,))
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.steps_taken = 0

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        self.random = [np.random.default_rng(seed) for seed in seeds]
        self.left = [self._begin(i) for i in range(self.num_envs)]
        self.is_long = [left == LONG for left in self.left]
        return torch.zeros(self.num_envs, 1), {}

    def _begin(self, index: int) -> int:
        return LONG if self.random[index].random() < 0.5 else 1

    def step(self, action: Tensor) -> Step:
        self.steps_taken += 1
        reward, ended = torch.zeros(self.num_envs), torch.zeros(self.num_envs, dtype=torch.bool)
        for i in range(self.num_envs):
            self.left[i] -= 1
            if self.left[i] == 0:
                reward[i], ended[i] = float(self.is_long[i]), True
                self.left[i] = self._begin(i)
                self.is_long[i] = self.left[i] == LONG
        zeros = torch.zeros(self.num_envs, 1)
        return Step(zeros, reward, ended, torch.zeros_like(ended), zeros, {})


class Still:
    """A policy that does nothing."""

    def initial_state(self, n: int) -> Any:
        return None

    def act(self, observation: Any, state: Any, is_first: Tensor, *, mode: str, generator: torch.Generator) -> ActResult:
        return ActResult(torch.zeros(len(is_first), dtype=torch.int64), state)


def quota(episodes: int, num_envs: int) -> list[int]:
    return [episodes // num_envs + (i < episodes % num_envs) for i in range(num_envs)]


@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 1), (10, 4), (3, 8), (37, 16), (64, 16)])
def test_exactly_as_many_episodes_as_asked_evenly_from_every_copy(episodes: int, num_envs: int) -> None:
    result = evaluate_episodes(Still(), Mixed(num_envs), episodes, mode="greedy", seed=5)
    assert len(result.returns) == len(result.lengths) == episodes
    assert not result.timed_out
    # Each copy's first episodes and no others, found by following it alone.
    expected = []
    for i, wanted in enumerate(quota(episodes, num_envs)):
        random = np.random.default_rng(derive_seed(5, "env", i))
        expected += [LONG if random.random() < 0.5 else 1 for _ in range(wanted)]
    assert result.lengths.tolist() == expected
    assert result.returns.tolist() == [float(length == LONG) for length in expected]


def test_short_episodes_are_not_favoured() -> None:
    episodes, num_envs = 320, 16
    result = evaluate_episodes(Still(), Mixed(num_envs), episodes, mode="greedy", seed=0)
    assert abs(result.returns.mean() - 0.5) < 3 * 0.5 / episodes**0.5  # three standard errors of a fair coin
    # What finishes first is short: a naive rule would report exactly 0 for five episodes, and be wrong by 0.5.
    environment, first_finished = Mixed(num_envs), []
    environment.reset([derive_seed(0, "env", i) for i in range(num_envs)])
    while len(first_finished) < 5:
        step = environment.step(torch.zeros(num_envs))
        first_finished += step.reward[step.terminated].tolist()
    assert np.mean(first_finished[:5]) == 0.0
    few = [evaluate_episodes(Still(), Mixed(10), 10, mode="greedy", seed=seed).returns.mean() for seed in range(40)]
    assert abs(np.mean(few) - 0.5) < 3 * 0.5 / 400**0.5


def test_statistics_by_hand() -> None:
    result = EvaluationResult(np.array([1.0, 3.0, 8.0]), np.array([10, 20, 60]), "greedy")
    assert result.metrics() == pytest.approx(
        {
            "eval/return_mean": 4.0,
            "eval/return_std": (26 / 3) ** 0.5,
            "eval/return_min": 1.0,
            "eval/return_max": 8.0,
            "eval/length_mean": 30.0,
            "eval/episodes": 3.0,
        }
    )


def test_a_timeout_reports_what_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(Mixed):
        def step(self, action: Tensor) -> Step:
            now[0] += 1.0
            return super().step(action)

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    result = evaluate_episodes(Still(), Slow(4), 100, mode="greedy", seed=0, timeout_s=70.0)
    assert result.timed_out
    assert 0 < len(result.returns) < 100
    assert now[0] == pytest.approx(71.0)
    nothing = evaluate_episodes(Still(), Slow(1), 5, mode="greedy", seed=2, timeout_s=-1.0)
    assert nothing.timed_out
    assert nothing.metrics() == {"eval/episodes": 0.0}


def test_progress_is_told() -> None:
    seen: list[int] = []
    evaluate_episodes(Still(), Mixed(4), 12, mode="greedy", seed=0, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 12


# ---- during training ------------------------------------------------------------------------------------------------


def evaluator(config: Any, **options: Any) -> Evaluator:
    return Evaluator(
        lambda num_envs: make_environment(config.environment, num_envs=num_envs),
        **{"episodes": 5, "modes": ("greedy",), "seed": 1, "device": torch.device("cpu"), **options},
    )


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1"])
def test_evaluating_changes_nothing_in_training(name: str) -> None:
    """Environments, streams, global generators, normalisers, buffers, optimisers: the whole run, before and after."""
    config = ppo_config(name, env={"normalize_observations": "rolling", "normalize_rewards": True})
    run = start(config)
    run.workflow.collect(PHASE, 16)
    run.workflow.update(PHASE, 1)
    run.workflow.collect(PHASE, 5)
    before = copied(state_of(run))
    measure = evaluator(config, modes=("greedy", "sample"))
    for steps in (64, 128):
        measure.evaluate(run.workflow.policy(), steps, 8)
    assert_same_state(state_of(run), before)
    measure.close()


def test_the_same_moment_is_measured_the_same_way_and_another_one_anew() -> None:
    config = ppo_config("Pendulum-v1")
    policy = start(config).workflow.policy()
    one, other = evaluator(config), evaluator(config)
    first = one.evaluate(policy, 100, 8)
    second = one.evaluate(policy, 200, 8)
    assert first != second
    assert other.evaluate(policy, 200, 8) == second  # also without the evaluation before
    assert one.evaluate(policy, 100, 8) == first


def test_both_ways_of_acting_are_reported_the_one_that_counts_first() -> None:
    config = ppo_config("Pendulum-v1")
    policy = start(config).workflow.policy()
    both = evaluator(config, modes=("greedy", "sample")).evaluate(policy, 0, 0)
    assert both["eval/return_mean"] == evaluator(config, modes=("greedy",)).evaluate(policy, 0, 0)["eval/return_mean"]
    sampled = evaluator(config, modes=("sample",)).evaluate(policy, 0, 0)["eval/return_mean"]
    assert both["eval/sample_return_mean"] == sampled != both["eval/return_mean"]
    assert both["eval/sample_episodes"] == 5.0


def test_the_mode_does_not_depend_on_chance_and_a_sample_does() -> None:
    policy = start(ppo_config("Pendulum-v1")).workflow.policy()
    observation, first = torch.randn(6, 3), torch.ones(6, dtype=torch.bool)

    def act(mode: Any, seed: int) -> Tensor:
        return policy.act(observation, None, first, mode=mode, generator=torch.Generator().manual_seed(seed)).action

    assert torch.equal(act("greedy", 1), act("greedy", 2))
    assert not torch.equal(act("sample", 1), act("sample", 2))
    assert torch.equal(act("sample", 1), act("sample", 1))


def test_evaluation_environments_are_made_once_and_closed() -> None:
    made: list[int] = []

    def make(num_envs: int) -> VectorEnvironment:
        made.append(num_envs)
        return make_environment(EnvironmentConfig(id="CartPole-v1"), num_envs=num_envs)

    policy = start(ppo_config()).workflow.policy()
    measure = Evaluator(make, episodes=40, modes=("greedy",), seed=1, device=torch.device("cpu"))
    measure.evaluate(policy, 0, 0)
    measure.evaluate(policy, 1, 0)
    assert made == [16]
    measure.close()

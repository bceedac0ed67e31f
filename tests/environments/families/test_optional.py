"""The environment contract on families that need packages of their own; those that are not installed are skipped."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from etude.config.schema import EnvironmentConfig
from etude.environments.check.probe import random_action
from etude.environments.make import make_environment
from etude.environments.vector import Observation, VectorEnvironment
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import train

pytestmark = [pytest.mark.optional, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

# id, package, backend, whether its state can be captured, and whether its episodes begin in many ways
CASES = [
    ("VizDoom-Basic-v0", "vizdoom", "auto", "restart", True),
    ("VizdoomDeadlyCorridor-v1", "vizdoom", "auto", "restart", True),
    ("Retro/Airstriker-Genesis-v0", "stable_retro", "auto", "exact", False),
    ("FetchReach-v4", "gymnasium_robotics", "auto", "restart", True),
    ("PointMaze_UMaze-v3", "gymnasium_robotics", "auto", "restart", True),
    ("brax/inverted_pendulum", "brax", "auto", "exact", True),
    ("CartPole-v1", "envpool", "envpool", "restart", True),
    ("HalfCheetah-v5", "envpool", "envpool", "restart", True),
    ("ALE/Pong-v5", "envpool", "envpool", "restart", False),
]
SEEDS = [3, 2**62 + 1]
LIMIT = 6


@pytest.fixture(params=CASES, ids=[f"{name}-{backend}" for name, _, backend, _, _ in CASES])
def case(request: pytest.FixtureRequest) -> Any:
    if importlib.util.find_spec(request.param[1]) is None:
        pytest.skip(f"{request.param[1]} is not installed")
    return request.param


@pytest.fixture
def opened(case: Any) -> Any:
    environments: list[VectorEnvironment] = []

    def build(seeds: list[int] | None = None, **options: Any) -> tuple[VectorEnvironment, Observation]:
        name, _, backend, _, _ = case
        environment = make_environment(EnvironmentConfig(id=name, num_envs=len(SEEDS), backend=backend, **options))
        environments.append(environment)
        return environment, copied(environment.reset(seeds or SEEDS)[0])

    yield build
    for environment in environments:
        environment.close()


def copied(observation: Observation) -> dict[str, torch.Tensor]:
    parts = observation if isinstance(observation, dict) else {"": observation}
    return {key: value.clone() for key, value in parts.items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def walk(environment: VectorEnvironment, first: Any, count: int) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    environment.single_action_space.seed(5)
    seen, observation = [], first.get("", first)
    for _ in range(count):
        step = environment.step(random_action(environment.single_action_space, observation, environment.num_envs))
        observation = step.observation
        seen.append((copied(step.observation), step.reward.clone()))
    return seen


def test_observations_are_of_their_space(opened: Any) -> None:
    environment, first = opened()
    space = environment.single_observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    assert first.keys() == parts.keys()
    for key, value in first.items():
        assert tuple(value.shape) == (len(SEEDS), *(parts[key].shape or ()))
    for observation, reward in walk(environment, first, 10):
        assert reward.dtype == torch.float32
        assert all(value.isfinite().all() for value in observation.values())


def test_the_same_seeds_and_actions_lead_to_the_same_steps(opened: Any, case: Any) -> None:
    (one, first), (two, second) = opened(), opened()
    assert same(first, second)
    for (a, reward), (b, other) in zip(walk(one, first, 25), walk(two, second, 25), strict=True):
        assert same(a, b)
        assert torch.equal(reward, other)
    if case[4]:
        _, elsewhere = opened([8, 9])
        assert not same(first, elsewhere) or not same(walk(one, first, 1)[0][0], first)


def test_a_time_limit_truncates_and_the_next_episode_begins_in_the_same_step(opened: Any, case: Any) -> None:
    environment, first = opened(max_episode_steps=LIMIT)
    observation: Any = first.get("", first)
    for number in range(1, 3 * LIMIT + 1):
        action = random_action(environment.single_action_space, observation, environment.num_envs)
        # A pendulum that is pushed about would fall before the limit.
        step = environment.step(action * 0 if action.is_floating_point() else action)
        observation = step.observation
        assert not step.terminated.any()
        assert step.truncated.all() == (number % LIMIT == 0)
        if number % LIMIT:
            assert step.final_observation is step.observation
        else:
            assert not same(copied(step.final_observation), copied(step.observation))


def test_a_saved_state_goes_on_as_it_was_or_nothing_is_claimed(opened: Any, case: Any) -> None:
    environment, first = opened()
    walk(environment, first, 12)
    state = environment.state_dict()
    assert environment.snapshot == case[3]
    if case[3] == "restart":
        assert state == {}
        return
    other, begun = opened([8, 9])
    walk(other, begun, 3)
    other.load_state_dict(state)
    for (a, reward), (b, again) in zip(walk(environment, first, 40), walk(other, begun, 40), strict=True):
        assert same(a, b)
        assert torch.equal(reward, again)


def test_it_trains_and_is_evaluated(case: Any, tmp_path: Path) -> None:
    name, _, backend, _, _ = case
    words = (
        *(f"environment.backend={backend}", "environment.num_envs=2", "training.total_steps=32", "algorithm.rollout_steps=8"),
        *("algorithm.batch_size=0.5", "algorithm.epochs=1", "evaluation.every_steps=32", "evaluation.episodes=2"),
        *(f"environment.max_episode_steps={LIMIT}", "experiment.compile=off"),
    )
    run = train(f"{name}:ppo", tmp_path, *words)
    assert run.summary["counters"]["updates"] == 4
    assert read_rows(run.metrics_path)[-1]["eval/episodes"] == 2


def test_goals_are_relabelled_in_a_robots_task(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    for algorithm in ("sac", "td3"):
        words = (
            *(
                "environment.num_envs=2",
                "training.total_steps=200",
                "algorithm.learning_starts=110",
                "evaluation.every_steps=0",
            ),
            *("buffers.replay.type=hindsight", "algorithm.batch_size=16", "experiment.compile=off"),
        )
        run = train(f"FetchReach-v4:{algorithm}", tmp_path, *words)
        assert run.summary["counters"]["updates"] > 0

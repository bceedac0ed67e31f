"""The environment contract, on every Gymnasium environment that runs here without an extra."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.environments.spaces import action_spec, observation_specs
from etude.environments.vector import Observation, Step, VectorEnvironment

FAMILIES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
IDS = sorted(name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(FAMILIES))
N = 3
SEEDS = [11, 12, 13]


def make(name: str, num_envs: int = N, **options: Any) -> VectorEnvironment:
    return make_environment(EnvironmentConfig(id=name, num_envs=num_envs, **options))


def actions(space: gymnasium.Space[Any], steps: int, num_envs: int = N, seed: int = 0) -> list[torch.Tensor]:
    random = np.random.default_rng(seed)
    if isinstance(space, spaces.Discrete):
        return list(torch.from_numpy(random.integers(0, int(space.n), (steps, num_envs))))
    assert isinstance(space, spaces.Box)
    drawn = random.uniform(space.low, space.high, (steps, num_envs, *space.shape))
    return list(torch.from_numpy(drawn.astype(np.float32)))


def parts(observation: Observation) -> dict[str, torch.Tensor]:
    return observation if isinstance(observation, dict) else {"": observation}


def copied(observation: Observation) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in parts(observation).items()}


def same(one: Observation, other: Observation) -> bool:
    return all(torch.equal(value, parts(other)[name]) for name, value in parts(one).items())


def test_there_is_something_to_test() -> None:
    assert {"CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1"} <= set(IDS)


@pytest.mark.parametrize("name", IDS)
def test_shapes_types_and_devices_are_as_declared(name: str) -> None:
    environment = make(name)
    specs = observation_specs(environment.single_observation_space)
    assert action_spec(environment.single_action_space)

    def check(observation: Observation) -> None:
        assert isinstance(observation, dict) == ("" not in specs)
        assert parts(observation).keys() == specs.keys()
        for key, value in parts(observation).items():
            assert value.shape == (N, *specs[key].shape)
            assert value.dtype == specs[key].dtype
            assert value.device == environment.device

    observation, info = environment.reset(SEEDS)
    check(observation)
    assert info == {}
    for action in actions(environment.single_action_space, 200):
        step = environment.step(action)
        check(step.observation)
        check(step.final_observation)
        assert (step.reward.shape, step.reward.dtype) == ((N,), torch.float32)
        assert (step.terminated.shape, step.terminated.dtype) == ((N,), torch.bool)
        assert (step.truncated.shape, step.truncated.dtype) == ((N,), torch.bool)
        assert step.final_observation is step.observation or (step.terminated | step.truncated).any()
    environment.close()


@pytest.mark.parametrize("name", IDS)
def test_trajectories_are_those_of_plain_gymnasium(name: str) -> None:
    """Rewards, ends, final observations and the first observations of new episodes, in every copy, bit for bit."""
    limit = 25  # so that every environment here is cut many times
    environment = make(name, max_episode_steps=limit)
    plain = [gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True) for _ in SEEDS]
    observation, _ = environment.reset(SEEDS)
    firsts = [env.reset(seed=seed)[0] for env, seed in zip(plain, SEEDS, strict=True)]
    for i, first in enumerate(firsts):
        assert_row(observation, i, first)
    ends = 0
    for action in actions(environment.single_action_space, 300):
        step = environment.step(action)
        for i, env in enumerate(plain):
            given = action[i].item() if action.ndim == 1 else action[i].numpy()
            after, reward, terminated, truncated, _ = env.step(given)
            assert step.reward[i] == np.float32(reward)
            assert bool(step.terminated[i]) == terminated
            assert bool(step.truncated[i]) == truncated
            assert_row(step.final_observation, i, after)
            if terminated or truncated:
                after, _ = env.reset()
                ends += 1
            assert_row(step.observation, i, after)
    assert ends >= N * (300 // limit)


def assert_row(observation: Observation, index: int, expected: Any) -> None:
    values = expected if isinstance(expected, tuple) else (expected,)
    rows = [value[index].numpy() for value in parts(observation).values()]
    for row, value in zip(rows, values, strict=True):
        assert row.tobytes() == np.asarray(value).astype(row.dtype).tobytes()


@pytest.mark.parametrize("name", IDS)
def test_a_step_stays_valid_through_the_next_one(name: str) -> None:
    environment = make(name, max_episode_steps=7)
    first, _ = environment.reset(SEEDS)
    kept: Step | None = None
    kept_copy: list[Any] = []
    first_copy = copied(first)
    for index, action in enumerate(actions(environment.single_action_space, 30)):
        step = environment.step(action)
        if index == 0:
            assert same(first, first_copy)
        if kept is not None:
            for value, copy in zip(kept[:5], kept_copy, strict=True):
                assert same(value, copy)
        kept = step
        kept_copy = [copied(value) for value in step[:5]]


def test_a_step_is_overwritten_by_the_second_next() -> None:
    environment = make("Pendulum-v1")
    environment.reset(SEEDS)
    first, second, third = (environment.step(action) for action in actions(environment.single_action_space, 3))
    assert isinstance(first.observation, torch.Tensor)
    assert isinstance(second.observation, torch.Tensor)
    assert isinstance(third.observation, torch.Tensor)
    assert first.observation.data_ptr() == third.observation.data_ptr() != second.observation.data_ptr()
    assert first.reward.data_ptr() == third.reward.data_ptr()


def test_only_rows_that_ended_differ_from_the_final_observation() -> None:
    environment = make("CartPole-v1", num_envs=4)
    environment.reset([1, 2, 3, 4])
    seen = 0
    for action in actions(environment.single_action_space, 200, num_envs=4):
        step = environment.step(action)
        ended = step.terminated | step.truncated
        assert isinstance(step.observation, torch.Tensor)
        assert isinstance(step.final_observation, torch.Tensor)
        if not ended.any():
            assert step.final_observation is step.observation
            continue
        assert step.final_observation is not step.observation
        seen += int(ended.sum())
        assert torch.equal(step.observation[~ended], step.final_observation[~ended])
        # A fallen pole is outside the bounds that every new episode begins within.
        assert (step.final_observation[ended][:, [0, 2]].abs() > torch.tensor([2.4, 0.2095])).any(-1).all()
        assert (step.observation[ended].abs() <= 0.05).all()
    assert seen > 10


def test_a_time_limit_truncates_and_a_goal_terminates() -> None:
    environment = make("CliffWalking-v1", num_envs=1, max_episode_steps=5)
    environment.reset([0])
    steps = [environment.step(torch.tensor([0])) for _ in range(5)]  # up, into the wall
    assert steps[-1].truncated.tolist() == [True]
    assert steps[-1].terminated.tolist() == [False]
    up_right_down = [0, *[1] * 11, 2]
    environment = make("CliffWalking-v1", num_envs=1)
    environment.reset([0])
    steps = [environment.step(torch.tensor([move])) for move in up_right_down]
    assert steps[-1].terminated.tolist() == [True]
    assert steps[-1].truncated.tolist() == [False]


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "Taxi-v4"])
def test_a_copy_does_not_depend_on_how_many_there_are(name: str) -> None:
    wide, narrow = make(name, num_envs=4), make(name, num_envs=1)
    wide.reset([5, 6, 7, 8])
    narrow.reset([7])
    for action in actions(wide.single_action_space, 200, num_envs=4):
        many, one = wide.step(action), narrow.step(action[2:3])
        assert torch.equal(many.reward[2:3], one.reward)
        for key, value in parts(many.observation).items():
            assert torch.equal(value[2:3], parts(one.observation)[key])


def test_resetting_with_the_same_seeds_begins_the_same_episodes() -> None:
    environment = make("Acrobot-v1")
    first = copied(environment.reset(SEEDS)[0])
    for action in actions(environment.single_action_space, 20):
        environment.step(action)
    assert same(first, environment.reset(SEEDS)[0])

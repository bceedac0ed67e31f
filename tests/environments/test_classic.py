"""Our vectorised classic control is Gymnasium's, transition by transition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from etude.config.schema import EnvironmentConfig
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_environment
from etude.environments.native.classic import TASKS, ClassicVector
from etude.errors import UserError
from etude.runs.checkpoint import CheckpointStore

SEEDS = [11, 12, 13, 14, 15]


def _actions(space: gymnasium.Space[Any], steps: int) -> list[torch.Tensor]:
    generator = np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        return [torch.from_numpy(generator.integers(space.n, size=len(SEEDS))) for _ in range(steps)]
    return [torch.from_numpy(generator.uniform(-2.5, 2.5, (len(SEEDS), 1)).astype(np.float32)) for _ in range(steps)]


@pytest.mark.parametrize("name", TASKS)
def test_trajectories_equal_gymnasiums_from_the_same_seeds_and_actions(name: str) -> None:
    ours = make_environment(EnvironmentConfig(id=name, num_envs=len(SEEDS)))
    theirs = make_environment(EnvironmentConfig(id=name, num_envs=len(SEEDS), backend="gymnasium"))
    assert isinstance(ours, ClassicVector)
    assert isinstance(theirs, GymnasiumVector)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.return_threshold == theirs.return_threshold
    first, other = ours.reset(SEEDS)[0], theirs.reset(SEEDS)[0]
    assert torch.equal(first, other)  # type: ignore[arg-type]
    ends = 0
    for step, action in enumerate(_actions(ours.single_action_space, 700)):
        mine, reference = ours.step(action), theirs.step(action)
        for field in ("observation", "reward", "terminated", "truncated", "final_observation"):
            assert torch.equal(getattr(mine, field), getattr(reference, field)), (step, field)
        ended = mine.terminated | mine.truncated
        assert (mine.final_observation is mine.observation) == (not ended.any())
        ends += int(ended.sum())
    assert ends > 0


@pytest.mark.parametrize("name", TASKS)
def test_a_single_copy_is_the_first_of_many(name: str) -> None:
    one, many = (make_environment(EnvironmentConfig(id=name, num_envs=count)) for count in (1, len(SEEDS)))
    assert torch.equal(one.reset(SEEDS[:1])[0], many.reset(SEEDS)[0][:1])  # type: ignore[index,arg-type]
    ends = 0
    for step, action in enumerate(_actions(one.single_action_space, 700)):
        mine, reference = one.step(action[:1]), many.step(action)
        for field in ("observation", "reward", "terminated", "truncated", "final_observation"):
            assert torch.equal(getattr(mine, field), getattr(reference, field)[:1]), (step, field)
        ended = mine.terminated | mine.truncated
        assert (mine.final_observation is mine.observation) == (not ended.any())
        ends += int(ended.sum())
    assert ends > 0


@pytest.mark.parametrize("name", TASKS)
def test_a_saved_state_continues_bit_for_bit_in_a_fresh_environment(name: str, tmp_path: Path) -> None:
    config = EnvironmentConfig(id=name, num_envs=len(SEEDS))
    first = make_environment(config)
    first.reset(SEEDS)
    actions = _actions(first.single_action_space, 600)
    for action in actions[:150]:
        first.step(action)
    store = CheckpointStore(tmp_path, keep=1)
    saved = store.save({"rank/0": first.state_dict()}, counters={"env_steps": 0, "updates": 0}, metadata={}).load()
    second = make_environment(config)
    second.load_state_dict(saved["rank/0"])  # type: ignore[arg-type]
    for action in actions[150:]:
        one, other = first.step(action), second.step(action)
        assert torch.equal(one.observation, other.observation)  # type: ignore[arg-type]
        assert torch.equal(one.reward, other.reward)
        assert torch.equal(one.terminated, other.terminated)


def test_a_step_stays_valid_through_the_next_one() -> None:
    environment = make_environment(EnvironmentConfig(id="CartPole-v1", num_envs=2))
    environment.reset([1, 2])
    first = environment.step(torch.tensor([0, 1]))
    kept = first.observation.clone()  # type: ignore[union-attr]
    environment.step(torch.tensor([1, 1]))
    assert torch.equal(first.observation, kept)  # type: ignore[arg-type]


def test_a_shorter_time_limit_truncates() -> None:
    environment = make_environment(EnvironmentConfig(id="Pendulum-v1", num_envs=2, max_episode_steps=7))
    environment.reset([1, 2])
    steps = [environment.step(torch.zeros(2, 1)) for _ in range(7)]
    assert steps[-1].truncated.all()
    assert not steps[-1].terminated.any()


def test_arguments_that_only_gymnasium_knows_use_its_class_and_native_says_so() -> None:
    config = EnvironmentConfig(id="Pendulum-v1", num_envs=2, kwargs={"g": 9.81})
    assert isinstance(make_environment(config), GymnasiumVector)
    with pytest.raises(UserError, match=r"environment.backend=native: Pendulum-v1"):
        make_environment(EnvironmentConfig(id="Pendulum-v1", kwargs={"g": 9.81}, backend="native"))
    with pytest.raises(UserError, match=r"FrozenLake-v1 has none"):
        make_environment(EnvironmentConfig(id="FrozenLake-v1", backend="native"))

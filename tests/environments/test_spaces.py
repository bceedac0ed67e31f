"""Every kind of space is mapped to tensors, or refused by name."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.environments.gymnasium import GymnasiumVector
from etude.errors import UserError

BOX = spaces.Box(-1, 1, (2,), np.float32)


class Echo(gymnasium.Env[Any, Any]):
    """Observes what its space samples, remembers every action, ends after five steps."""

    def __init__(self, observation_space: Any = BOX, action_space: Any = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.age += 1
        self.last = self.observation_space.sample()
        return self.last, 1.0, self.age == 5, False, {}


def vector(observation_space: Any = BOX, action_space: Any = None, num_envs: int = 2) -> tuple[GymnasiumVector, list[Echo]]:
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo(observation_space, action_space))
        return made[-1]

    environment = GymnasiumVector(make, num_envs)
    environment.reset(list(range(num_envs)))
    return environment, made


# ---- observations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), (3,), torch.float32),
        (spaces.Box(-1, 1, (3,), np.float64), (3,), torch.float32),
        (spaces.Box(-1, 1, (), np.float32), (), torch.float32),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), (4, 4, 3), torch.uint8),
        (spaces.Box(-9, 9, (2,), np.int64), (2,), torch.int64),
        (spaces.Box(-9, 9, (2,), np.int16), (2,), torch.int16),
        (spaces.Discrete(4), (), torch.int64),
        (spaces.Discrete(4, start=-2), (), torch.int64),
        (spaces.MultiDiscrete([2, 5]), (2,), torch.int64),
        (spaces.MultiBinary(3), (3,), torch.int8),
        (spaces.MultiBinary([2, 3]), (2, 3), torch.int8),
    ],
    ids=str,
)
def test_an_observation_becomes_the_tensor_of_its_space(space: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    environment, made = vector(space)
    step = environment.step(torch.zeros(2, dtype=torch.int64))
    assert isinstance(step.observation, torch.Tensor)
    assert step.observation.shape == (2, *shape)
    assert step.observation.dtype == dtype
    for row, env in zip(step.observation, made, strict=True):
        np.testing.assert_array_equal(row.numpy(), np.asarray(env.last).astype(row.numpy().dtype))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"position": BOX, "room": spaces.Discrete(3), "bits": spaces.MultiBinary(2)}),
        spaces.Tuple((BOX, spaces.Discrete(3), spaces.MultiDiscrete([2, 2]))),
    ],
    ids=["dict", "tuple"],
)
def test_dicts_and_tuples_become_flat_dicts_of_tensors(space: Any) -> None:
    environment, made = vector(space)
    for _ in range(7):
        step = environment.step(torch.zeros(2, dtype=torch.int64))
    assert isinstance(step.observation, dict)
    names = list(space.spaces) if isinstance(space, spaces.Dict) else ["0", "1", "2"]
    assert list(step.observation) == names
    for index, env in enumerate(made):
        for name in names:
            expected = env.last[name] if isinstance(space, spaces.Dict) else env.last[int(name)]
            np.testing.assert_array_equal(step.observation[name][index].numpy(), expected)


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        (spaces.Dict({"inner": spaces.Dict({"a": BOX})}), "observation 'inner' is a Dict space"),
        (spaces.Dict({"pair": spaces.Tuple((BOX, BOX))}), "observation 'pair' is a Tuple space"),
        (spaces.Tuple((BOX, spaces.Tuple((BOX,)))), "observation '1' is a Tuple space"),
        (spaces.Text(5), "observation is a Text space"),
        (spaces.Dict({"words": spaces.Text(5)}), "observation 'words' is a Text space"),
        (spaces.Graph(BOX, spaces.Discrete(2)), "observation is a Graph space"),
        (spaces.Sequence(BOX), "observation is a Sequence space"),
        (spaces.Box(0, 9, (2,), np.uint64), "observation is a Box of uint64 space"),
    ],
    ids=str,
)
def test_observations_without_a_tensor_are_refused_by_name(space: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=f"{complaint}; Etude reads Box, Discrete, MultiDiscrete, MultiBinary and one level"):
        GymnasiumVector(lambda: Echo(space), 1)


@pytest.mark.parametrize(
    "space", [spaces.Dict({"a": BOX}), spaces.Tuple((BOX,)), spaces.Text(3), spaces.Sequence(BOX)], ids=str
)
def test_actions_without_a_tensor_are_refused_by_name(space: Any) -> None:
    with pytest.raises(UserError, match=f"actions are {type(space).__name__}; Etude acts in Box, Discrete, MultiDiscrete"):
        GymnasiumVector(lambda: Echo(action_space=space), 1)


# ---- actions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "given", "received"),
    [
        (spaces.Discrete(3), [2, 0], [2, 0]),
        (spaces.Discrete(3, start=5), [2, 0], [7, 5]),
        (spaces.Discrete(3, start=-1), [2, 0], [1, -1]),
        (spaces.MultiDiscrete([3, 4]), [[2, 3], [0, 1]], [[2, 3], [0, 1]]),
        (spaces.MultiDiscrete([3, 4], start=[10, -2]), [[2, 3], [0, 1]], [[12, 1], [10, -1]]),
        (spaces.MultiBinary(2), [[1, 0], [0, 1]], [[1, 0], [0, 1]]),
        (spaces.Box(-2, 2, (2,), np.float32), [[0.5, -0.5], [2.0, 1.0]], [[0.5, -0.5], [2.0, 1.0]]),
        (spaces.Box(-2, 2, (2,), np.float64), [[0.5, -0.5], [2.0, 1.0]], [[0.5, -0.5], [2.0, 1.0]]),
        (spaces.Box(-2, 2, (), np.float32), [0.5, -0.25], [0.5, -0.25]),
        (spaces.Box(0, 9, (1,), np.int32), [[3.6], [8.9]], [[4], [9]]),
    ],
    ids=str,
)
def test_an_environment_is_given_a_member_of_its_own_action_space(space: Any, given: Any, received: Any) -> None:
    environment, made = vector(action_space=space)
    environment.step(torch.tensor(given))
    for env, expected in zip(made, received, strict=True):
        assert space.contains(env.actions[0])
        np.testing.assert_array_equal(env.actions[0], expected)


def test_an_environment_may_write_into_its_action() -> None:
    environment, made = vector(action_space=spaces.Box(-2, 2, (2,), np.float32))
    action = torch.ones(2, 2)
    environment.step(action)
    made[0].actions[0][:] = 99.0
    assert (action == 1.0).all()


# ---- randomness -----------------------------------------------------------------------------------------------------


def test_environments_that_draw_from_their_spaces_are_reproducible() -> None:
    """A space has a generator of its own, which Gymnasium seeds from the clock unless somebody does it."""
    space = spaces.Dict({"position": BOX, "room": spaces.Discrete(100)})

    def draws() -> list[list[float]]:
        environment, _ = vector(space)
        steps = [environment.step(torch.zeros(2, dtype=torch.int64)).observation["position"].clone() for _ in range(9)]
        return torch.stack(steps).tolist()

    assert draws() == draws()


def test_spaces_and_environment_do_not_share_their_randomness() -> None:
    class Both(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            return np.array([self.np_random.random(), self.observation_space.np_random.random()], np.float32), {}

    environment = GymnasiumVector(lambda: Both(spaces.Box(-1, 1, (2,), np.float32)), 1)
    observation, _ = environment.reset([3])
    assert isinstance(observation, torch.Tensor)
    assert observation[0, 0] != observation[0, 1]

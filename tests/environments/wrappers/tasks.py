"""Small tasks to wrap, and ways to wrap them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from etude.config.schema import EnvironmentConfig
from etude.config.validate import Validator
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.spaces import action_spec
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.environments.wrappers.build import Wrappers


class Pictures(gymnasium.Env[Any, Any]):
    """Random pictures, and episodes of random length that end in either way."""

    action_space = spaces.Discrete(3)

    def __init__(self, shape: tuple[int, ...] = (21, 16, 3), dtype: Any = np.uint8) -> None:
        high = 255 if dtype is np.uint8 else 1.0
        self.observation_space = spaces.Box(0, high, shape, dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        drawn = self.np_random.random()
        return self._observe(), float(self.np_random.normal() + action), drawn < 0.15, 0.15 <= drawn < 0.3, {}

    def _observe(self) -> Any:
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.np_random.random(self.observation_space.shape, np.float32)


class Sensors(Pictures):
    """Numbers, and continuous actions that are seen in the reward."""

    action_space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))  # type: ignore[assignment] # another task

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float64)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        drawn = self.np_random.random()
        return self._observe(), float(action.sum()), drawn < 0.15, 0.15 <= drawn < 0.3, {}

    def _observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 3)


class Rooms(Pictures):
    """A number for each room."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(5, start=2)

    def _observe(self) -> Any:
        return int(self.np_random.integers(2, 7))


class Buttons(Rooms):
    """Two discrete actions at once, one of which counts from 3, and two discrete observations."""

    action_space = spaces.MultiDiscrete([2, 3], start=[0, 3])  # type: ignore[assignment] # another task

    def __init__(self) -> None:
        self.observation_space = spaces.MultiDiscrete([3, 5])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return super().step(float(action @ [1, 10]))

    def _observe(self) -> Any:
        return self.np_random.integers([3, 5])


class Ball(Pictures):
    """Some numbers, a ball that is out of play now and then, its speed or not, and more numbers."""

    def __init__(self, before: int, rest: int, knows_speed: bool) -> None:
        self.sizes = (before, 2 * knows_speed, rest)
        self.observation_space = spaces.Box(-1, 1, (sum(self.sizes) + 2,), np.float32)

    def _observe(self) -> Any:
        draw = self.np_random
        ball = draw.random(2) * (draw.random() < 0.7)
        before, speed, rest = (draw.random(size) for size in self.sizes)
        return np.concatenate([before, ball, speed, rest.round()]).astype(np.float32)


class Mixed(Pictures):
    """A picture, numbers and a goal to be reached."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            observation=spaces.Box(-1, 1, (3,), np.float32),
            achieved_goal=spaces.Box(-1, 1, (2,), np.float32),
            desired_goal=spaces.Box(-1, 1, (2,), np.float32),
            view=spaces.Box(0, 255, (6, 4, 3), np.uint8),
        )

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired).sum(-1)

    def _observe(self) -> Any:
        draw = self.np_random
        numbers = {key: draw.uniform(-1, 1, size).astype(np.float32) for key, size in
                   (("observation", 3), ("achieved_goal", 2), ("desired_goal", 2))}  # fmt: skip
        return {**numbers, "view": draw.integers(0, 256, (6, 4, 3), np.uint8)}


TASKS: dict[str, Any] = {
    "pictures": Pictures,
    "float pictures": lambda: Pictures((7, 9), np.float32),
    "chw pictures": lambda: Pictures((3, 21, 16)),
    "sensors": Sensors,
    "rooms": Rooms,
    "mixed": Mixed,
    "buttons": Buttons,
    "pong": lambda: Ball(2, 0, True),
    "still pong": lambda: Ball(2, 0, False),
    "breakout": lambda: Ball(1, 108, True),
    "still breakout": lambda: Ball(1, 108, False),
    "cartpole": lambda: gymnasium.make("CartPole-v1", max_episode_steps=30, disable_env_checker=True),
    "mountaincar": lambda: gymnasium.make("MountainCar-v0", max_episode_steps=30, disable_env_checker=True),
}


def config_of(*wrappers: dict[str, Any]) -> EnvironmentConfig:
    return Validator().build(EnvironmentConfig, {"id": "Task-v0", "wrappers": list(wrappers)}, "environment")


class Passing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes nothing, and has to be inside a copy: so does all that comes before it."""


PASSING = {"id": "tests.environments.wrappers.tasks.Passing"}


def make_task(name: str) -> gymnasium.Env[Any, Any]:
    return TimeLimit(TASKS[name](), 50)


def around(name: str, *wrappers: dict[str, Any], num_envs: int = 3, training: bool = True) -> VectorEnvironment:
    """The task in a vector, and wrappers as `environment.wrappers` has them."""
    stack = Wrappers(config_of(*wrappers).wrappers, training=training)
    return stack.wrap_vector(GymnasiumVector(lambda: stack.wrap_copy(make_task(name)), num_envs))


def inside(name: str, *wrappers: dict[str, Any], num_envs: int = 3) -> VectorEnvironment:
    """The same, with every wrapper inside the copies."""
    return around(name, *wrappers, PASSING, num_envs=num_envs)


def actions(environment: VectorEnvironment, count: int, seed: int = 0) -> list[torch.Tensor]:
    space = environment.single_action_space
    space.seed(seed)
    dtype = action_spec(space).dtype
    first = getattr(space, "start", 0)
    drawn = np.stack([[space.sample() - first for _ in range(environment.num_envs)] for _ in range(count)])
    return list(torch.from_numpy(drawn).to(dtype))


def parts(observation: Observation) -> dict[str, torch.Tensor]:
    return observation if isinstance(observation, dict) else {"": observation}


def copied(observation: Observation) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in parts(observation).items()}


Seen = tuple[dict[str, torch.Tensor], ...]


def live(environment: VectorEnvironment, acts: Sequence[torch.Tensor]) -> list[Any]:
    """Step, and return copies of all that was seen."""
    return [kept(environment.step(action)) for action in acts]


def kept(step: Step) -> tuple[Any, ...]:
    facts = (step.reward.clone(), step.terminated.clone(), step.truncated.clone())
    return (copied(step.observation), copied(step.final_observation), *facts)


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)

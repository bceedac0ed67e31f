"""A task written once for N copies, as a vector environment and as a Gymnasium environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.utils.seeding import np_random
from torch import Tensor

from etude.environments.gymnasium import complete_finals
from etude.environments.state_vector import StateVector, generator_at
from etude.environments.vector import Observation, Step

Array = np.ndarray
Generators = Sequence[np.random.Generator]


class Outcome(NamedTuple):
    """What one step of N copies did."""

    state: Array
    """(N, state_size)"""
    reward: Array
    """(N,)"""
    terminated: Array
    """(N,) bool"""
    info: dict[str, Array] = {}  # noqa: RUF012 # never written to
    """More about the step, (N,) each."""


class Task(ABC):
    """The rules: where an episode begins, what an action does, what is seen. A copy's state is a row of numbers."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Array:
        """Return the state an episode begins in. (state_size,)"""

    @abstractmethod
    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """Act in every copy; chance comes from each copy's own generator."""

    @abstractmethod
    def observe(self, state: Array) -> dict[str, Array]:
        """Return what is seen of each state, by key; a single observation has the empty key. (N, ...)"""

    def vector(self, num_envs: int, *, max_episode_steps: int | None, return_threshold: float | None = None) -> TaskVector:
        """Return N copies."""
        return TaskVector(self, num_envs, max_episode_steps, return_threshold)


class TaskVector(StateVector):
    """N copies of a task, stepped in one call."""

    def __init__(self, task: Task, num_envs: int, max_episode_steps: int | None, return_threshold: float | None) -> None:
        super().__init__(num_envs, 0, task.observation_space, task.action_space)
        self.task, self.return_threshold = task, return_threshold
        self._limit = max_episode_steps or np.iinfo(np.int64).max

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        self._generators = [np_random(seed)[0] for seed in seeds]
        self._state = np.stack([self.task.draw(generator) for generator in self._generators])
        self._age[:] = 0
        buffers = self._buffers.next()
        self._observe(buffers.arrays)
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        buffers = self._buffers.next()
        self._state, reward, terminated, info = self.task.advance(self._state, action.numpy(), self._generators)
        self._age += 1
        buffers.reward[:], buffers.terminated[:] = reward, terminated
        np.greater_equal(self._age, self._limit, out=buffers.truncated)
        ended = np.flatnonzero(buffers.terminated | buffers.truncated)
        if ended.size:
            self._observe(buffers.finals)
            self._state[ended] = [self.task.draw(self._generators[i]) for i in ended]
            self._age[ended] = 0
        self._observe(buffers.arrays)
        step = buffers.as_step(complete_finals(buffers))
        return step._replace(info={name: torch.from_numpy(np.asarray(value)) for name, value in info.items()})

    def _observe(self, arrays: dict[str, Array]) -> None:
        for key, value in self.task.observe(self._state).items():
            arrays[key][:] = value


class TaskEnv(gymnasium.Env[Any, Any]):
    """One copy of a task, as Gymnasium has it: the same trajectory from the same seed and actions."""

    task_class: ClassVar[type[Task]]

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        self.task = self.task_class(**kwargs)
        self.observation_space, self.action_space = self.task.observation_space, self.task.action_space
        self.render_mode = render_mode
        self._state = np.zeros((1, 0))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        self._state = self.task.draw(self.np_random)[None]
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once."""
        self._state, reward, terminated, info = self.task.advance(self._state, np.asarray(action)[None], [self.np_random])
        return self._observe(), float(reward[0]), bool(terminated[0]), False, {key: value[0] for key, value in info.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the generator."""
        return {"state": self._state.copy(), "generator": self.np_random.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where it was."""
        self._state = np.array(state["state"])
        self.np_random = generator_at(state["generator"])

    def _observe(self) -> Any:
        seen = {key: value[0].astype(self._space(key).dtype) for key, value in self.task.observe(self._state).items()}
        return seen.get("", seen)

    def _space(self, key: str) -> gymnasium.Space[Any]:
        return self.observation_space[key] if key else self.observation_space  # type: ignore[index] # a Dict has keys

"""Sensors and motors as they are: noisy and late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.config.constraints import NonNegativeFloat, PositiveInt
from etude.environments.spaces import action_spec, observation_specs
from etude.environments.vector import Observation
from etude.environments.wrappers.options import PartConfig, WrapperConfig
from etude.environments.wrappers.transform import PartTransform, Transform

_DRAWN_AHEAD = 1024  # numbers


@dataclass(frozen=True)
class NoiseConfig(PartConfig):
    """Random errors of observations."""

    id: str = "noise"
    std: NonNegativeFloat = 0.01
    """The standard deviation of the error, in the observation's own unit."""
    distribution: Literal["normal", "uniform"] = "normal"
    """How errors are distributed."""
    training_only: bool = True
    """Evaluate and play without it."""


class Noise(PartTransform):
    """Adds random errors, other ones in each copy; what would leave the observation's bounds stays at them."""

    Config = NoiseConfig
    wants = "a box of floats"
    remembers = ("_generators", "_drawn", "_next")

    def __init__(self, config: NoiseConfig) -> None:
        super().__init__(config.key)
        self._std, self._is_normal = config.std, config.distribution == "normal"

    def suits(self, space: gymnasium.Space[Any]) -> bool:
        """Errors are fractions."""
        return isinstance(space, spaces.Box) and np.issubdtype(np.dtype(space.dtype), np.floating)

    def prepare_part(self, space: Any) -> gymnasium.Space[Any]:
        """Note the bounds, and make room for errors drawn ahead: one call for many steps."""
        self._low, self._high = (
            torch.tensor(bound, dtype=torch.float32, device=self.device) for bound in (space.low, space.high)
        )
        ahead = max(1, _DRAWN_AHEAD // max(1, int(np.prod(space.shape))))
        self._drawn = np.zeros((self.num_envs, ahead, *space.shape), np.float32)
        self._next = np.full(self.num_envs, ahead)
        """Of each copy, which of its errors is next; at the end, more are drawn."""
        self._generators = [np.random.default_rng() for _ in range(self.num_envs)]
        self._all = np.arange(self.num_envs)
        return space

    def seed(self, seeds: Sequence[int]) -> None:
        """A stream for each copy, so that a copy draws the same whatever the others do."""
        self._generators = [np.random.default_rng(derive_seed(seed, "wrapper", self.place)) for seed in seeds]
        self._next[:] = self._drawn.shape[1]

    def begin_part(self, value: Tensor, copies: Tensor) -> Tensor:
        """Err in these copies."""
        return self._err(value, self._all if len(copies) == self.num_envs else copies.cpu().numpy())

    def observe_part(self, value: Tensor) -> Tensor:
        """Err in all copies."""
        return self._err(value, self._all)

    def _err(self, value: Tensor, copies: np.ndarray) -> Tensor:
        for copy in copies[self._next[copies] == self._drawn.shape[1]]:
            draw = self._generators[copy].standard_normal if self._is_normal else self._generators[copy].random
            draw(out=self._drawn[copy], dtype=np.float32)
            self._next[copy] = 0
        error = torch.from_numpy(self._drawn[copies, self._next[copies]]).to(value.device)
        self._next[copies] += 1
        if not self._is_normal:
            error = (error - 0.5) * 12**0.5  # of standard deviation 1
        return torch.clamp(value + error * self._std, self._low, self._high)


@dataclass(frozen=True)
class ObservationLagConfig(WrapperConfig):
    """Late observations."""

    id: str = "observation_lag"
    steps: PositiveInt = 1
    """How many steps ago what is seen was true."""


class ObservationLag(Transform):
    """Shows what was true some steps ago; at an episode's beginning, its first observation."""

    Config = ObservationLagConfig
    config: ObservationLagConfig
    remembers = ("_queue",)
    _queue: dict[str, Tensor]
    """(N, steps + 1, ...) by the name of the part, the oldest first"""

    def prepare(self) -> None:
        """Make room."""
        self._queue = {
            name: torch.zeros(self.num_envs, self.config.steps + 1, *spec.shape, dtype=spec.dtype, device=self.device)
            for name, spec in observation_specs(self.observation_space).items()
        }

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Forget the past."""
        for name, value in _by_name(observation).items():
            past = value.unsqueeze(1).expand(-1, self.config.steps + 1, *value.shape[1:])
            self._queue = {**self._queue, name: self._queue[name].index_copy(0, copies, past)}
        return observation

    def observe(self, observation: Observation) -> Observation:
        """Return the oldest."""
        new = _by_name(observation)
        self._queue = {name: torch.cat([past[:, 1:], new[name].unsqueeze(1)], 1) for name, past in self._queue.items()}
        oldest = {name: past[:, 0] for name, past in self._queue.items()}
        return oldest if isinstance(observation, dict) else oldest[""]


def _by_name(observation: Observation) -> dict[str, Tensor]:
    return observation if isinstance(observation, dict) else {"": observation}


@dataclass(frozen=True)
class ActionLagConfig(WrapperConfig):
    """Late actions."""

    id: str = "action_lag"
    steps: PositiveInt = 1
    """How many steps ago what is done was chosen."""


class ActionLag(Transform):
    """Does what was chosen some steps ago; at an episode's beginning action 0, or the one nearest to zeros."""

    Config = ActionLagConfig
    config: ActionLagConfig
    remembers = ("_queue",)

    def prepare(self) -> None:
        """Make room."""
        spec = action_spec(self.action_space)
        self._first = torch.zeros(spec.shape, dtype=spec.dtype, device=self.device)
        if isinstance(self.action_space, spaces.Box):
            low, high = (
                torch.tensor(bound, device=self.device).to(spec.dtype)
                for bound in (self.action_space.low, self.action_space.high)
            )
            self._first = torch.clamp(self._first, low, high)
        self._queue = self._first.expand(self.num_envs, self.config.steps, *spec.shape).clone()
        """(N, steps, ...), the oldest first"""

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Forget the past."""
        self._queue = self._queue.index_copy(0, copies, self._first.expand(len(copies), *self._queue.shape[1:]))
        return observation

    def action(self, action: Tensor) -> Tensor:
        """Return the oldest."""
        late = self._queue[:, 0]
        self._queue = torch.cat([self._queue[:, 1:], action.to(late.dtype).unsqueeze(1)], 1)
        return late

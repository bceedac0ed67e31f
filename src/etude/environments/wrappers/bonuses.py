"""Rewards for what is done or where one is, whatever the task pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.constraints import NonNegativeFloat, PositiveInt
from etude.environments.spaces import discrete_actions, finite_range
from etude.environments.vector import Observation
from etude.environments.wrappers.options import RewardConfig
from etude.environments.wrappers.transform import Transform
from etude.errors import UserError

_MOST_CELLS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class ActionRewardConfig(RewardConfig):
    """A price for each action."""

    id: str = "action_reward"
    rewards: tuple[float, ...]
    """What each discrete action earns besides, in order; negative numbers are costs."""


class ActionReward(Transform):
    """Adds a reward of its own to each discrete action."""

    Config = ActionRewardConfig
    config: ActionRewardConfig

    def prepare(self) -> None:
        """One number per action."""
        count, rewards = discrete_actions(self.action_space), self.config.rewards
        if len(rewards) != count:
            raise UserError(f"rewards={list(rewards)}: must be {count} numbers, one for each action")
        self._table = torch.tensor(rewards, dtype=torch.float32, device=self.device)
        self._earned = torch.zeros(self.num_envs, device=self.device)

    def action(self, action: Tensor) -> Tensor:
        """Look up what it earns."""
        self._earned = self._table[action]
        return action

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Add that."""
        return reward + self._earned


@dataclass(frozen=True)
class StateCountBonusConfig(RewardConfig):
    """A reward for what is new."""

    id: str = "state_count_bonus"
    weight: NonNegativeFloat = 0.1
    """The bonus of the first visit; the n-th earns this divided by √n."""
    bins: PositiveInt = 10
    """Into how many parts each number of an observation is divided."""
    low: tuple[float, ...] | None = None
    """Where the first part begins, for each number. Default: the observation's bounds."""
    high: tuple[float, ...] | None = None
    """Where the last part ends. Default: the observation's bounds."""


class StateCountBonus(Transform):
    """Pays for rare observations, by how often their part of the space was visited; the copies count together."""

    Config = StateCountBonusConfig
    config: StateCountBonusConfig
    remembers = ("_counts",)

    def prepare(self) -> None:
        """Divide the space."""
        space, config = self.observation_space, self.config
        if isinstance(space, spaces.Discrete):
            self._size, cells = 0, int(space.n)
            self._first = int(space.start)
        elif isinstance(space, spaces.Box) and len(space.shape) == 1:
            self._size, cells = space.shape[0], config.bins ** space.shape[0]
            self._low, self._width = self._divide(space)
        else:
            raise UserError(f"needs a vector or a discrete observation, and this is {type(space).__name__} {space.shape}")
        if cells > _MOST_CELLS:
            raise UserError(f"bins={config.bins}: {self._size} numbers make {cells:,} cells; use fewer bins")
        self._place = config.bins ** torch.arange(self._size, device=self.device)
        self._counts = torch.zeros(cells, dtype=torch.int64, device=self.device)

    def _divide(self, space: spaces.Box) -> tuple[Tensor, Tensor]:
        bounds = []
        for given, own, name in ((self.config.low, space.low, "low"), (self.config.high, space.high, "high")):
            if given is None and not finite_range(space).all():
                raise UserError(f"observations have no finite bounds; set {name}, {self._size} numbers")
            if given is not None and len(given) != self._size:
                raise UserError(f"{name}={list(given)}: must be {self._size} numbers, one for each of an observation")
            bounds.append(np.asarray(own if given is None else given, np.float32))
        if not (bounds[0] < bounds[1]).all():
            raise UserError("low must be below high everywhere")
        low, high = (torch.from_numpy(bound).to(self.device) for bound in bounds)
        return low, (high - low) / self.config.bins

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Count, and pay."""
        assert isinstance(observation, Tensor)
        cells = self._cells(observation)
        self._counts = self._counts.index_add(0, cells, torch.ones_like(cells))
        return reward + self.config.weight / self._counts[cells].double().sqrt().float()

    def _cells(self, observation: Tensor) -> Tensor:
        """(N,) or (N, size) → (N,)"""
        if not self._size:
            return observation - self._first
        parts = ((observation - self._low) / self._width).floor().long().clamp(0, self.config.bins - 1)
        return (parts * self._place).sum(1)

"""Rewards on the way to the goal that leave the best policy what it was (Ng, Harada and Russell 1999).

A potential Φ says how promising a state is, and each step earns γ Φ(s') − Φ(s) more. Over an episode that adds up, discounted,
to −Φ of its first state, whatever was done in between, if Φ of where a task ended counts as 0. An episode that was merely cut
has a last state with its own value, and its Φ counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.constraints import PositiveFloat, UnitInterval
from etude.environments.vector import Observation
from etude.environments.wrappers.options import RewardConfig
from etude.environments.wrappers.transform import Transform
from etude.errors import UserError


@dataclass(frozen=True)
class ShapingConfig(RewardConfig):
    """A potential."""

    gamma: UnitInterval = 0.99
    """The discount of the algorithm; write ${algorithm.gamma}. With another one the best policy may change."""
    scale: PositiveFloat = 1.0
    """How much a potential counts. Larger speaks louder than the task's own rewards."""


class Shaping(Transform):
    """Adds γ Φ(s') − Φ(s) to each reward; a subclass defines Φ."""

    config: ShapingConfig
    remembers = ("_potential",)
    entries: ClassVar[int] = 0
    """How many numbers an observation must have at least."""
    task: ClassVar[str] = ""
    """What it was made for."""

    def potential(self, observation: Tensor) -> Tensor:
        """Return Φ of each state, (N, ...) → (N,), between 0 and 1 for ordinary states."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Check that it is the task this was made for, as far as its observations tell."""
        space: Any = self.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.shape[0] < self.entries:
            raise UserError(f"needs the observations of {self.task}, {self.entries} numbers; put it before what changes them")
        self._potential = torch.zeros(self.num_envs, device=self.device)

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Note where an episode begins."""
        self._potential = self._potential.index_copy(0, copies, self._of(observation))
        return observation

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Add the difference."""
        before = self._potential
        self._potential = torch.where(terminated, 0.0, self._of(observation))
        return reward + (self.config.gamma * self._potential - before)

    def _of(self, observation: Observation) -> Tensor:
        assert isinstance(observation, Tensor)
        return self.config.scale * self.potential(observation)


@dataclass(frozen=True)
class CartPoleShapingConfig(ShapingConfig):
    """Upright and in the middle."""

    id: str = "cartpole_shaping"


class CartPoleShaping(Shaping):
    """CartPole: 1 for a pole upright in the middle, 0 where both the angle and the position end the episode."""

    Config = CartPoleShapingConfig
    entries, task = 3, "CartPole"

    def potential(self, observation: Tensor) -> Tensor:
        """From position and angle."""
        position, angle = observation[:, 0].abs() / 2.4, observation[:, 2].abs() / (12 * math.pi / 180)
        return 1 - 0.5 * (position.clamp(max=1) + angle.clamp(max=1))


@dataclass(frozen=True)
class MountainCarShapingConfig(ShapingConfig):
    """Energy."""

    id: str = "mountaincar_shaping"


class MountainCarShaping(Shaping):
    """MountainCar: the car's energy, 0 at rest in the valley and 1 for what it takes to rest at the flag."""

    Config = MountainCarShapingConfig
    entries, task = 2, "MountainCar"

    def potential(self, observation: Tensor) -> Tensor:
        """From position and speed. The task's force of gravity is -0.0025 cos(3x), the slope of 0.0025 sin(3x) / 3."""
        position, speed = observation[:, 0].double(), observation[:, 1].double()
        energy = 0.0025 / 3 * (torch.sin(3 * position) + 1) + 0.5 * speed**2
        return (energy / (0.0025 / 3 * (math.sin(1.5) + 1))).float()


@dataclass(frozen=True)
class PongShapingConfig(ShapingConfig):
    """Near the ball."""

    id: str = "pong_shaping"
    scale: PositiveFloat = 0.1
    """How much a potential counts. Larger speaks louder than the task's own rewards."""


class PongShaping(Shaping):
    """Pong from `obs_type: objects`: 1 where the paddle is at the ball's height, less further off; 0 without a ball."""

    Config = PongShapingConfig
    entries, task = 4, "Pong (environment.kwargs.obs_type=objects)"

    def potential(self, observation: Tensor) -> Tensor:
        """From [player y, enemy y, ball x, ball y, ...]."""
        player, ball_x, ball_y = observation[:, 0], observation[:, 2], observation[:, 3]
        in_play = (ball_x != 0) | (ball_y != 0)
        return torch.where(in_play, 1 - (player - ball_y).abs(), 0.0)

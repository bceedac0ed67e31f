"""Features of games whose objects are known, `environment.kwargs.obs_type=objects`.

The task's layouts, positions as shares of the screen:

    Pong       player y, enemy y, ball x, ball y[, ball dx, ball dy]
    Breakout   paddle x, ball x, ball y[, ball dx, ball dy], bricks: 6 rows of 18, from the top

Where the ball's speed is missing it is the difference of two observations, 0 at an episode's beginning and whenever the ball
was not in play (at 0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.wrappers.options import WrapperConfig
from etude.environments.wrappers.transform import PartTransform
from etude.errors import UserError

_ROWS, _COLUMNS = 6, 18


class BallFeatures(PartTransform):
    """Numbers about a ball and what it meets."""

    remembers = ("_last_ball",)
    ball: ClassVar[int] = 0
    """Where the ball's numbers begin."""
    rest: ClassVar[int] = 0
    """How many numbers follow those of the ball."""
    features: ClassVar[int] = 0
    game: ClassVar[str] = ""

    def __init__(self, config: WrapperConfig) -> None:
        super().__init__()

    def compute(self, before: Tensor, ball: Tensor, speed: Tensor, rest: Tensor) -> Tensor:
        """Return the features (N, features) of what stands before the ball, the ball (N, 2), its speed and the rest."""
        raise NotImplementedError

    def prepare_part(self, space: spaces.Box) -> spaces.Box:
        """See whether the task knows the ball's speed."""
        without = self.ball + 2 + self.rest
        if space.shape not in ((without,), (without + 2,)):
            raise UserError(f"needs the objects of {self.game}, {without} or {without + 2} numbers, not {space.shape}")
        self._knows_speed = space.shape[0] == without + 2
        self._last_ball = torch.zeros(self.num_envs, 2, device=self.device)
        return spaces.Box(-np.inf, np.inf, (self.features,), np.float32)

    def begin_part(self, value: Tensor, copies: Tensor) -> Tensor:
        """A ball has no past yet."""
        ball = value[:, self.ball : self.ball + 2]
        self._last_ball = self._last_ball.index_copy(0, copies, ball)
        return self._features(value, torch.zeros_like(ball))

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, numbers) → (N, features)"""
        ball = value[:, self.ball : self.ball + 2].clone()
        in_play = (ball != 0).any(1, keepdim=True) & (self._last_ball != 0).any(1, keepdim=True)
        moved = torch.where(in_play, ball - self._last_ball, 0.0)
        self._last_ball = ball
        return self._features(value, moved)

    def _features(self, value: Tensor, moved: Tensor) -> Tensor:
        after = self.ball + 2
        speed = value[:, after : after + 2] if self._knows_speed else moved
        rest = value[:, after + 2 * self._knows_speed :]
        return self.compute(value[:, : self.ball], value[:, self.ball : after], speed, rest)


@dataclass(frozen=True)
class PongFeaturesConfig(WrapperConfig):
    """Pong in eight numbers."""

    id: str = "pong_features"


class PongFeatures(BallFeatures):
    """player y, enemy y, ball x, y, dx and dy, ball y − player y, ball y − enemy y; the last two are 0 without a ball."""

    Config = PongFeaturesConfig
    ball, rest, features, game = 2, 0, 8, "Pong"

    def compute(self, before: Tensor, ball: Tensor, speed: Tensor, rest: Tensor) -> Tensor:
        """Heights relative to the ball's are what decides."""
        in_play = (ball != 0).any(1, keepdim=True)
        return torch.cat([before, ball, speed, torch.where(in_play, ball[:, 1:] - before, 0.0)], 1)


@dataclass(frozen=True)
class BreakoutFeaturesConfig(WrapperConfig):
    """Breakout in twelve numbers."""

    id: str = "breakout_features"


class BreakoutFeatures(BallFeatures):
    """paddle x, ball x, y, dx and dy, ball x − paddle x, and of each row of bricks, from the top, the share that is left."""

    Config = BreakoutFeaturesConfig
    ball, rest, features, game = 1, _ROWS * _COLUMNS, 12, "Breakout"

    def compute(self, before: Tensor, ball: Tensor, speed: Tensor, rest: Tensor) -> Tensor:
        """Where the ball is beside the paddle is what decides."""
        in_play = (ball != 0).any(1, keepdim=True)
        rows = rest.unflatten(1, (_ROWS, _COLUMNS)).mean(2)
        return torch.cat([before, ball, speed, torch.where(in_play, ball[:, :1] - before, 0.0), rows], 1)

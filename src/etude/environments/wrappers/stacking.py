"""Several observations as one: what a single one does not show, such as speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.constraints import PositiveInt
from etude.environments.spaces import observation_specs
from etude.environments.wrappers.images import layout_of
from etude.environments.wrappers.options import PartConfig
from etude.environments.wrappers.transform import PartTransform


@dataclass(frozen=True)
class StackConfig(PartConfig):
    """The last observations."""

    id: str = "stack"
    count: PositiveInt = 4
    """How many observations, the newest last."""
    start: Literal["repeat", "zeros"] = "repeat"
    """What stands for the past when an episode begins: its first observation, or zeros."""


class Stack(PartTransform):
    """The last `count` observations: channels of one picture, or a new first dimension."""

    Config: ClassVar[Any] = StackConfig
    remembers = ("_frames",)

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config.key)
        self._count, self._repeat = config.count, config.start == "repeat"
        self._frames: Tensor | None = None
        """(N, count, ...), the oldest first"""

    def prepare_part(self, space: Any) -> gymnasium.Space[Any]:
        """Repeat the bounds."""
        spec = observation_specs(space)[""]
        self._frames = torch.zeros(self.num_envs, self._count, *spec.shape, dtype=spec.dtype, device=self.device)
        self._channels_last = len(space.shape) == 3 and layout_of(space.shape) == "hwc"
        low, high = (self._joined_array(bound) for bound in (space.low, space.high))
        if not self._repeat:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        return spaces.Box(low, high, dtype=space.dtype)

    def begin_part(self, value: Tensor, copies: Tensor) -> Tensor:
        """Forget the past."""
        past = value.unsqueeze(1).expand(-1, self._count, *value.shape[1:])
        if not self._repeat:
            past = past.clone()
            past[:, :-1] = 0
        assert self._frames is not None
        self._frames = self._frames.index_copy(0, copies, past)
        return self._joined(past)

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, ...) → (N, count, ...), joined"""
        assert self._frames is not None
        self._frames = torch.cat([self._frames[:, 1:], value.unsqueeze(1)], 1)
        return self._joined(self._frames)

    def _joined(self, frames: Tensor) -> Tensor:
        if frames.ndim != 5:  # (N, count), (N, count, size), (N, count, H, W)
            return frames
        if self._channels_last:  # (N, count, H, W, C) → (N, H, W, count · C)
            return frames.movedim(1, -2).flatten(-2)
        return frames.flatten(1, 2)

    def _joined_array(self, bound: np.ndarray) -> np.ndarray:
        return self._joined(torch.from_numpy(np.repeat(bound[None, None], self._count, 1)))[0].numpy()


@dataclass(frozen=True)
class HistoryConfig(StackConfig):
    """The last observations in a row."""

    id: str = "history"


class History(Stack):
    """The last `count` observations as one flat vector, the newest last."""

    Config: ClassVar[Any] = HistoryConfig

    def _joined(self, frames: Tensor) -> Tensor:
        return frames.flatten(1)

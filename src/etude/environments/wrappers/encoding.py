"""Whole numbers as vectors that a network can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.wrappers.options import PartConfig
from etude.environments.wrappers.transform import PartTransform


@dataclass(frozen=True)
class DiscreteEncoderConfig(PartConfig):
    """A discrete observation as numbers."""

    id: str = "discrete_encoder"
    encoding: Literal["array", "binary", "onehot"] = "onehot"
    """array: the number itself, counted from 0; binary: its bits, the highest first; onehot: a 1 in its place."""


class DiscreteEncoder(PartTransform):
    """Discrete and multi-discrete observations as a vector of floats."""

    Config = DiscreteEncoderConfig
    wants = "a discrete observation"

    def __init__(self, config: DiscreteEncoderConfig) -> None:
        super().__init__(config.key)
        self._encoding = config.encoding

    def suits(self, space: gymnasium.Space[Any]) -> bool:
        """Numbers to choose from."""
        return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)

    def prepare_part(self, space: Any) -> gymnasium.Space[Any]:
        """Make a table with one row of code for each value of each number."""
        counts = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(count) for count in space.nvec.ravel()]
        first = [int(space.start)] if isinstance(space, spaces.Discrete) else [int(start) for start in space.start.ravel()]
        self._first = torch.tensor(first, device=self.device)
        self._tables = [_table(count, self._encoding).to(self.device) for count in counts]
        highest = torch.cat([table.amax(0) for table in self._tables]).cpu().numpy()
        return spaces.Box(np.zeros_like(highest), highest, dtype=np.float32)

    def observe_part(self, value: Tensor) -> Tensor:
        """(N,) or (N, ...) → (N, size)"""
        numbers = value.reshape(len(value), -1) - self._first
        return torch.cat([table[numbers[:, place]] for place, table in enumerate(self._tables)], 1)


def _table(count: int, encoding: str) -> Tensor:
    numbers = torch.arange(count)
    if encoding == "array":
        return numbers[:, None].float()
    if encoding == "onehot":
        return torch.eye(count)
    bits = max(1, (count - 1).bit_length())
    return ((numbers[:, None] >> torch.arange(bits - 1, -1, -1)) & 1).float()

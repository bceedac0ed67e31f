"""An environment's mirror image: which numbers of an observation and an action change places, and which change their sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from etude.environments.vector import Observation


class Swap:
    """Numbers that change places and signs: y[i] = sign[i] · x[index[i]]. Twice is nothing at all."""

    def __init__(self, index: Sequence[int], sign: Sequence[float], device: torch.device | str = "cpu") -> None:
        if len(index) != len(sign):
            raise ValueError(f"{len(index)} places and {len(sign)} signs")
        if any(index[other] != i or sign[other] != sign[i] for i, other in enumerate(index)):
            raise ValueError("done twice, this would not be as before")
        self.index = torch.tensor(list(index), dtype=torch.int64, device=device)
        self.sign = torch.tensor(list(sign), dtype=torch.float32, device=device)

    def to(self, device: torch.device | str) -> Swap:
        """Return the same on another device."""
        return Swap(self.index.tolist(), self.sign.tolist(), device)

    def __call__(self, values: Tensor) -> Tensor:
        """(..., n) → (..., n)"""
        return values.index_select(-1, self.index) * self.sign


@dataclass(frozen=True)
class Mirror:
    """What an environment that has a mirror image offers, as `mirror()`."""

    observation: Mapping[str, Swap]
    """By the name of each part; "" where the observation has no parts."""
    action: Swap

    def observe(self, observation: Observation) -> Observation:
        """Return what the mirror image sees, (..., n) in every part."""
        if isinstance(observation, dict):
            return {name: self.observation[name](value) for name, value in observation.items()}
        return self.observation[""](observation)

    def to(self, device: torch.device | str) -> Mirror:
        """Return the same on another device."""
        return Mirror({name: swap.to(device) for name, swap in self.observation.items()}, self.action.to(device))

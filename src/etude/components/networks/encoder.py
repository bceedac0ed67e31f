"""Turns any observation the contract allows into one vector of features per environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from etude.components.recipes import Recipe, remember
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation

__all__ = ["ACTION_MASK", "FlatEncoder", "width"]


class FlatEncoder(nn.Module):
    """Flattens boxes, scales bytes to [0, 1], makes discrete values one-hot, and joins the parts of a dict by name."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self._parts = {name: part for name, part in leaf_spaces(space).items() if name != ACTION_MASK}
        self.size = sum(width(part) for part in self._parts.values())
        remember(self, Recipe("flat_encoder", spaces={"space": space}))

    def forward(self, observation: Observation) -> Tensor:
        """(*batch, ...) → (*batch, size), for any number of batch dimensions"""
        if not isinstance(observation, dict):
            return _features(self._parts[""], observation)
        return torch.cat([_features(part, observation[name]) for name, part in self._parts.items()], dim=-1)


def width(space: gymnasium.Space[Any]) -> int:
    """Return how many numbers describe a value of a space: one for each choice where it is discrete."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return int(np.prod(space.shape or ()))


def _features(space: gymnasium.Space[Any], value: Tensor) -> Tensor:
    if isinstance(space, spaces.Discrete):
        return functional.one_hot(value - int(space.start), int(space.n)).float()
    if isinstance(space, spaces.MultiDiscrete):
        flat = _flatten(value, space)
        sizes, starts = space.nvec.flatten().tolist(), space.start.flatten().tolist()
        return torch.cat(
            [functional.one_hot(flat[..., i] - s, n) for i, (n, s) in enumerate(zip(sizes, starts, strict=True))], -1
        ).float()
    flat = _flatten(value, space)
    return flat.float() / 255.0 if value.dtype == torch.uint8 else flat.float()


def _flatten(value: Tensor, space: gymnasium.Space[Any]) -> Tensor:
    """(*batch, *space.shape) → (*batch, size)"""
    return value.reshape(*value.shape[: value.ndim - len(space.shape or ())], -1)

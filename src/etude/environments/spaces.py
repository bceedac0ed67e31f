"""Gymnasium spaces as tensors, and which spaces are unsupported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.errors import UserError

_TORCH_DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float32,  # networks work in single precision
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.bool_): torch.bool,
}


@dataclass(frozen=True)
class TensorSpec:
    """Shape (without the batch) and type of one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numpy_dtype(self) -> Any:
        """The same type in NumPy."""
        return torch.empty(0, dtype=self.dtype).numpy().dtype


def leaf_spaces(space: gymnasium.Space[Any]) -> dict[str, gymnasium.Space[Any]]:
    """Return the parts of a flat Dict or Tuple space by name, or the space itself under the empty name."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    if isinstance(space, spaces.Tuple):
        return {str(index): part for index, part in enumerate(space.spaces)}
    return {"": space}


def observation_specs(space: gymnasium.Space[Any]) -> dict[str, TensorSpec]:
    """Return the tensors of an observation by name (the empty name for a single one); refuses what has no tensor."""
    return {name: _spec(part, name) for name, part in leaf_spaces(space).items()}


def finite_range(space: spaces.Box) -> np.ndarray:
    """Return which entries of a box have a lower and an upper bound that mean something in single precision."""
    with np.errstate(over="ignore", invalid="ignore"):  # ±3.4e38 stands for no bound in many spaces
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        return np.isfinite(low) & np.isfinite(high) & np.isfinite(high - low)


def discrete_actions(space: gymnasium.Space[Any], way_out: str = "") -> int:
    """Return how many discrete actions there are; UserError where actions are of another kind."""
    if not isinstance(space, spaces.Discrete):
        raise UserError(f"needs discrete actions, and these are {space}{way_out}")
    return int(space.n)


def action_spec(space: gymnasium.Space[Any]) -> TensorSpec:
    """Return the tensor of an action; refuses spaces that no tensor can act in."""
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return _spec(space, "action")
    raise UserError(
        f"this environment's actions are {type(space).__name__}; Etude acts in Box, Discrete, MultiDiscrete and MultiBinary"
    )


def first_value(space: gymnasium.Space[Any]) -> Any:
    """Return where a discrete action space counts from; our own actions always count from 0."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    return np.asarray(space.start) if isinstance(space, spaces.MultiDiscrete) else 0


def to_gymnasium(action: Tensor, space: gymnasium.Space[Any], first: Any) -> Any:
    """Return one action per copy, of the type its space has; a copy, which an environment may write into."""
    if isinstance(space, spaces.Discrete):
        return (action + first).tolist() if first else action.tolist()
    array = action.numpy()
    if isinstance(space, spaces.Box):
        if np.issubdtype(np.dtype(space.dtype), np.integer):
            array = np.rint(array)
        array = array.astype(space.dtype)
        return array if space.shape else [array[i, ...] for i in range(len(array))]
    return (array + first).astype(space.dtype)


def _spec(space: gymnasium.Space[Any], name: str) -> TensorSpec:
    if isinstance(space, spaces.Discrete):
        return TensorSpec((), torch.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return TensorSpec(tuple(space.shape), torch.int64)
    if isinstance(space, spaces.MultiBinary):
        return TensorSpec(tuple(space.shape), torch.int8)
    if isinstance(space, spaces.Box) and np.dtype(space.dtype) in _TORCH_DTYPES:
        return TensorSpec(tuple(space.shape), _TORCH_DTYPES[np.dtype(space.dtype)])
    where = f"'{name}' " if name else ""
    kind = f"{type(space).__name__} of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
    raise UserError(
        f"observation {where}is a {kind} space; Etude reads Box, Discrete, MultiDiscrete, MultiBinary "
        "and one level of Dict or Tuple"
    )

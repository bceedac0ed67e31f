"""Columns: named tensors with the same leading dimensions; an observation may itself be a dict of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Columns = Mapping[str, Any]
STEP_COLUMNS = ("observation", "is_first", "action", "reward", "terminated", "truncated", "next_observation")
"""What collecting writes of each step; an algorithm may add columns of its own."""


_RENAMED = {"final_observation": "next_observation"}
"""Columns of checkpoints, and of settings, that were called otherwise before."""


def todays_name(name: str) -> str:
    """Return what a column, or a part of one, is called now: `next_observation.camera`."""
    column, dot, part = name.partition(".")
    return f"{_RENAMED.get(column, column)}{dot}{part}"


def todays_names(columns: Columns) -> dict[str, Any]:
    """Return columns of a checkpoint by the names that they have now."""
    return {todays_name(name): value for name, value in columns.items()}


def leaves(columns: Columns) -> Iterator[Tensor]:
    """Yield every tensor, in order."""
    for value in columns.values():
        if isinstance(value, Mapping):
            yield from leaves(value)
        else:
            yield value


def leaves_like(columns: Columns, row: Columns) -> Iterator[Tensor]:
    """Yield the tensors of `columns` in the order in which `row` has them."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from leaves_like(columns[key], value)
        else:
            yield columns[key]


def map_columns(columns: Columns, function: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Apply a function to every tensor."""
    return {key: map_columns(v, function) if isinstance(v, Mapping) else function(v) for key, v in columns.items()}


def take(columns: Columns, index: Tensor) -> dict[str, Any]:
    """Return the rows of flat columns that `index` names, of any shape: (..., *row)."""
    if index.ndim == 1:
        return {k: take(v, index) if isinstance(v, Mapping) else v.index_select(0, index) for k, v in columns.items()}
    flat = index.reshape(-1)
    return map_columns(columns, lambda column: column.index_select(0, flat).view(*index.shape, *column.shape[1:]))


def copy_columns(target: Columns, source: Columns) -> None:
    """Copy every tensor of `source` into its namesake."""
    for ours, theirs in zip(leaves_like(target, source), leaves(source), strict=True):
        ours.copy_(theirs)


def named_leaves(columns: Columns, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name: `reward`, `observation.camera`."""
    for key, value in columns.items():
        if isinstance(value, Mapping):
            yield from named_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's memory; of a type that NumPy lacks (bfloat16), as the bytes that it is."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # on a device, part of a graph, or of such a type
        here = tensor.detach().cpu()
        return (here.view(torch.int16) if here.dtype is torch.bfloat16 else here).numpy()


def sent(column: Tensor, device: torch.device) -> Tensor:
    """Return a column on another device. A GPU fetches it from pinned memory while the host goes on."""
    pinned = column.pin_memory() if device.type == "cuda" and column.device.type == "cpu" else column
    return pinned.to(device, non_blocking=True)

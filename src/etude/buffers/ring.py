"""A ring of vector steps: the newest rows stay, the oldest are overwritten.

Rows are numbered from the first one ever written, and row `a` lies in slot `a % rows`:

    slots    0   1   2   3   4          rows = 5, written = 8: row 7 is the newest, row 3 the oldest
    rows     5   6   7 │ 3   4
                       cursor
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.buffers.base import allocate
from etude.buffers.columns import leaves, leaves_like, map_columns

ROWS_OF_VIEWS = 256


class Ring:
    """Columns of shape (rows, N, ...). What is held lies in slots 0 to `held`, wherever the cursor is."""

    def __init__(self, rows: int, name: str, device: torch.device) -> None:
        self.rows = rows
        self.name = name
        self.device = device
        self.columns: dict[str, Any] = {}
        self.flat: dict[str, Any] = {}
        """The same memory as (rows · N, ...)."""
        self.num_envs = 0
        self.written = 0
        """The number of the next row."""
        self.begin = 0
        """The number of the oldest row held."""
        self._arrays: list[np.ndarray] = []
        self._is_flat = True
        self._views: list[tuple[Tensor, ...]] = []
        self._views_from = -1
        self._alike: list[list[int]] = []

    @property
    def held(self) -> int:
        """How many rows are held."""
        return self.written - self.begin

    @property
    def cursor(self) -> int:
        """The slot of the next row: where the oldest one is, once the ring is full."""
        return self.written % self.rows

    def allocate(self, row: Mapping[str, Any]) -> None:
        """Take the memory, for rows that look like this one (N, ...)."""
        self.num_envs = len(next(leaves(row)))
        self.columns = allocate(row, (self.rows, self.num_envs), self.name, self.device)
        self.flat = map_columns(self.columns, lambda column: column.flatten(0, 1))
        self._arrays, self._alike, self._views_from = [], [], -1

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one row (N, ...) in; its tensors always come in the same order."""
        if self.device.type == "cpu":
            self._copy_on_host(row)
        else:
            self._copy(row)
        self.written += 1
        self.begin = max(self.begin, self.written - self.rows)

    def _copy_on_host(self, row: Mapping[str, Any]) -> None:
        """Write through NumPy, whose indexing costs a fifth of torch's."""
        if not self._arrays:
            self._arrays = [_array(column) for column in leaves_like(self.columns, row)]
            self._is_flat = not any(isinstance(value, Mapping) for value in row.values())
        slot = self.written % self.rows
        for array, value in zip(self._arrays, row.values() if self._is_flat else leaves(row), strict=True):
            array[slot] = value if type(value) is np.ndarray else _array(value)

    def _copy(self, row: Mapping[str, Any]) -> None:
        block, place = divmod(self.cursor, ROWS_OF_VIEWS)
        if block != self._views_from:
            # Views of many slots at once: a fifth of the cost of indexing each column at each step.
            slots = slice(block * ROWS_OF_VIEWS, (block + 1) * ROWS_OF_VIEWS)
            self._views = list(zip(*(column[slots].unbind() for column in leaves_like(self.columns, row)), strict=True))
            self._views_from = block
        views, values = self._views[place], list(leaves(row))
        if not self._alike:
            self._alike = _alike(views, values)
        for places in self._alike:
            torch._foreach_copy_([views[i] for i in places], [values[i] for i in places])  # type: ignore[reportPrivateImportUsage] # torch has no public name for it

    def clear(self) -> None:
        """Hold nothing. Numbers go on from the next lap, so that no slot's generation comes twice."""
        if self.held or self.cursor:
            self.written = (self.written // self.rows + 1) * self.rows
        self.begin = self.written

    def generation(self, index: Tensor) -> Tensor:
        """Return how often the slot of each transition (row · N + environment) had been written over before."""
        lap = self.written // self.rows
        return lap - (index >= self.cursor * self.num_envs).to(torch.int64)

    def slices(self, first: int, end: int) -> list[slice]:
        """Return the slots of rows `first` to `end`, in order: one stretch, or two around the ring's end."""
        low, count = first % self.rows, end - first
        over = low + count - self.rows
        return [slice(low, low + count)] if over <= 0 else [slice(low, self.rows), slice(0, over)]


def _alike(views: Sequence[Tensor], values: Sequence[Tensor]) -> list[list[int]]:
    """Return the places of tensors of the same types: a device copies each such group in one launch."""
    groups: dict[Any, list[int]] = {}
    for place, (view, value) in enumerate(zip(views, values, strict=True)):
        groups.setdefault((view.dtype, value.dtype, value.device), []).append(place)
    return list(groups.values())


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's memory; of a type that NumPy lacks (bfloat16), as the bytes that it is."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # on a device, part of a graph, or of such a type
        here = tensor.detach().cpu()
        return (here.view(torch.int16) if here.dtype is torch.bfloat16 else here).numpy()

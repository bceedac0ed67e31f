"""What a ring saves: whole segments of rows are written once; the oldest and the newest rows go with each checkpoint.

    rows     begin                                              written
             ├──┬────────────┬────────────┬────────────┬─────────┤
             head  segment       segment      segment      tail

Segments lie on a grid of row numbers, so that what is saved depends on the rows alone, not on when a run was saved before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from etude.buffers.columns import leaves, map_columns, named_leaves, todays_names
from etude.buffers.ring import Ring
from etude.errors import EtudeError
from etude.files.segments import Segment, StoredSegment

SEGMENTS_PER_RING = 256
SMALLEST_SEGMENT, LARGEST_SEGMENT = 2**20, 2**24
"""Bytes. Small ones cost a file each; up to two of them, head and tail, are written with every checkpoint."""


class RingState:
    """Saves and restores a ring, and remembers which of its segments are on disk."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._stored: dict[int, StoredSegment] = {}

    def rows_per_segment(self) -> int:
        """Return how many rows make a segment: a small part of the ring, but neither a tiny nor a huge file."""
        ring = self.ring
        row = sum(tensor[0].nbytes for tensor in leaves(ring.columns))
        wanted = max(math.ceil(ring.rows / SEGMENTS_PER_RING), math.ceil(SMALLEST_SEGMENT / row))
        return max(1, min(wanted, LARGEST_SEGMENT // row))

    def state_dict(self) -> dict[str, Any]:
        """Return the rows held, without a copy."""
        ring = self.ring
        state: dict[str, Any] = {"rows": ring.rows, "written": ring.written, "begin": ring.begin}
        if not ring.columns:
            return {**state, "segment_rows": 0, "head": {}, "segments": [], "tail": {}}
        step = self.rows_per_segment()
        first_cell, last_cell = math.ceil(ring.begin / step), ring.written // step
        self._stored = {cell: stored for cell, stored in self._stored.items() if cell >= first_cell}
        tail_from = max(ring.begin, last_cell * step)
        return {
            **state,
            "segment_rows": step,
            "head": self._read(ring.begin, min(first_cell * step, tail_from)),
            "segments": [self._segment(cell, step) for cell in range(first_cell, last_cell)],
            "tail": self._read(tail_from, ring.written),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved; the newest of them, if the ring is smaller now."""
        ring, written = self.ring, state["written"]
        self._stored = {}
        if not state["tail"]:
            ring.written, ring.begin = written, state["begin"]
            return
        num_envs = next(leaves(state["tail"])).shape[1]
        if num_envs != ring.num_envs:
            raise EtudeError(
                f"buffer '{ring.name}' was saved with {num_envs} environments and can't go on with {ring.num_envs}; set "
                "environment.num_envs back"
            )
        same = state["rows"] == ring.rows
        first = max(state["begin"], written - ring.rows)
        moved = 0 if same else first  # another ring has other slots: its rows are numbered anew
        ring.written, ring.begin = written - moved, first - moved
        reached = state["begin"]
        for rows in (state["head"], *state["segments"], state["tail"]):
            reached = self._load(rows, reached, first, moved)
        if reached != written:
            raise EtudeError(f"buffer '{ring.name}': the checkpoint has rows up to {reached} of {written}")
        if same and state["segment_rows"] == self.rows_per_segment():
            step = state["segment_rows"]
            self._stored = {each.first // step: each.stored for each in state["segments"] if each.stored is not None}

    def _segment(self, cell: int, step: int) -> Segment:
        ring, first, end = self.ring, cell * step, (cell + 1) * step

        def load() -> Mapping[str, Tensor]:
            if first < ring.begin or end > ring.written:
                raise RuntimeError(f"rows {first} to {end} of buffer '{ring.name}' were overwritten before they were saved")
            return dict(named_leaves(self._read(first, end)))

        keep = partial(self._stored.__setitem__, cell)
        return Segment(ring.name, first, step, load, stored=self._stored.get(cell), on_stored=keep)

    def _read(self, first: int, end: int) -> dict[str, Any]:
        slots = self.ring.slices(first, end)
        if len(slots) == 1:
            return map_columns(self.ring.columns, lambda column: column[slots[0]])
        return map_columns(self.ring.columns, lambda column: torch.cat([column[slot] for slot in slots]))

    def _load(self, rows: Segment | Mapping[str, Any], number: int, first: int, moved: int) -> int:
        """Copy saved rows that begin at `number` to their slots, those before `first` left out; returns where they end."""
        if isinstance(rows, Segment):
            end = number + rows.count
            if rows.first != number:
                raise EtudeError(f"buffer '{self.ring.name}': rows {number} to {rows.first} are not in the checkpoint")
            if end <= first:
                return end
            saved = todays_names(rows.load())
        else:
            end = number + len(next(leaves(rows)))
            saved = todays_names(dict(named_leaves(rows)))
        for name, column in named_leaves(self.ring.columns):
            part = saved[name]
            if part.shape[1:] != column.shape[1:] or part.dtype != column.dtype:
                raise EtudeError(f"buffer '{self.ring.name}': '{name}' was saved as {_shown(part)} and is {_shown(column)} now")
            if len(part) != end - number:
                raise EtudeError(f"buffer '{self.ring.name}': '{name}' has {len(part)} rows where {end - number} belong")
            part = part[max(0, first - number) :]
            place = end - len(part) - moved
            for slot in self.ring.slices(place, place + len(part)):
                size = slot.stop - slot.start
                column[slot].copy_(part[:size])
                part = part[size:]
        return end


def _shown(column: Tensor) -> str:
    return f"{str(column.dtype).removeprefix('torch.')} {tuple(column.shape[1:])}"

"""What a ring saves: rows that are complete go into segments, each written once; the newest rows go with the checkpoint.

    rows     begin                                              written
             ├──┬────────────┬────────────┬────────────┬─────────┤
             │  │  segment   │  segment   │  segment   │  tail   │
             cut: its older rows are overwritten       not yet a whole segment

Segments lie on a grid of row numbers, so where they begin does not depend on when a run was saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from etude.buffers.columns import leaves, map_columns, named_leaves
from etude.buffers.ring import Ring
from etude.errors import EtudeError
from etude.segments import Segment, StoredSegment

SEGMENTS_PER_RING = 256
SMALLEST_SEGMENT, LARGEST_SEGMENT = 2**20, 2**26
"""Bytes. Small ones cost a file each, large ones host memory while they are written and disk space while they are kept."""


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
            return {**state, "segments": [], "tail": {}, "segment_rows": 0}
        step = self.rows_per_segment()
        oldest, newest = ring.begin // step, ring.written // step
        self._stored = {cell: stored for cell, stored in self._stored.items() if cell >= oldest}
        segments = [self._segment(cell, step) for cell in range(oldest, newest)]
        tail = self._read(max(ring.begin, newest * step), ring.written)
        return {**state, "segments": segments, "tail": tail, "segment_rows": step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved; the newest of them, if the ring is smaller now."""
        ring = self.ring
        written, begin, tail = state["written"], state["begin"], state["tail"]
        if tail and len(next(leaves(tail))[0]) != ring.num_envs:
            raise EtudeError(
                f"buffer '{ring.name}' was saved with {len(next(leaves(tail))[0])} environments and can't go on with "
                f"{ring.num_envs}; set environment.num_envs back"
            )
        same = state["rows"] == ring.rows
        kept = min(written - begin, ring.rows)
        first = written - kept
        moved = 0 if same else first  # another ring has other slots: its rows are numbered anew
        ring.written, ring.begin = written - moved, first - moved
        self._stored = {}
        reached = begin
        for segment in state["segments"]:
            end = segment.first + segment.count
            if segment.first > reached or end <= reached:
                raise EtudeError(f"buffer '{ring.name}': rows {reached} to {segment.first} are not in the checkpoint")
            if end > first:
                self._write(segment.load(), segment.first, end, first, moved)
            if same and segment.stored is not None and state["segment_rows"] == self.rows_per_segment():
                self._stored[segment.first // state["segment_rows"]] = segment.stored
            reached = end
        if tail:
            self._write(dict(named_leaves(tail)), reached, written, first, moved)

    def _segment(self, cell: int, step: int) -> Segment:
        ring = self.ring
        first, end = max(ring.begin, cell * step), (cell + 1) * step

        def load() -> Mapping[str, Tensor]:
            if first < ring.begin or end > ring.written:
                raise RuntimeError(f"rows {first} to {end} of buffer '{ring.name}' were overwritten before they were saved")
            return dict(named_leaves(self._read(first, end)))

        keep = partial(self._stored.__setitem__, cell)
        return Segment(ring.name, first, end - first, load, stored=self._stored.get(cell), on_stored=keep)

    def _read(self, first: int, end: int) -> dict[str, Any]:
        slots = self.ring.slices(first, end)
        if len(slots) == 1:
            return map_columns(self.ring.columns, lambda column: column[slots[0]])
        return map_columns(self.ring.columns, lambda column: torch.cat([column[slot] for slot in slots]))

    def _write(self, saved: Mapping[str, Tensor], number: int, end: int, first: int, moved: int) -> None:
        """Copy rows `number` to `end` to their slots, those before `first` left out."""
        for name, column in named_leaves(self.ring.columns):
            rows = saved[name]
            if rows.shape != (end - number, *column.shape[1:]) or rows.dtype != column.dtype:
                raise EtudeError(
                    f"buffer '{self.ring.name}': rows {number} to {end} of column '{name}' were saved as {_shown(rows)}, "
                    f"and {_shown(column)} is expected"
                )
            rows = rows[max(0, first - number) :]
            place = max(first, number) - moved
            for slot in self.ring.slices(place, place + len(rows)):
                part, rows = rows[: slot.stop - slot.start], rows[slot.stop - slot.start :]
                column[slot].copy_(part)


def _shown(column: Tensor) -> str:
    return f"{str(column.dtype).removeprefix('torch.')} {tuple(column.shape)}"

"""What a store saves: whole segments of steps are written once; the oldest and the newest steps go with each checkpoint.

    steps    begin                                              written
             ├──┬────────────┬────────────┬────────────┬─────────┤
             head  segment       segment      segment      tail

Segments lie on a grid of step numbers, so that what is saved depends on the steps alone, not on when a run was saved before.
Each has its steps' columns, what they saw, and those ends that are among them. Columns that learning rewrites have segments of
their own, which are written again where something changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from etude.buffers.base import bytes_per_transition
from etude.buffers.columns import leaves, leaves_like, map_columns, named_leaves, todays_names
from etude.buffers.store import AT, LEADS_TO, Store
from etude.errors import EtudeError
from etude.files.segments import Segment, StoredSegment

SEGMENTS_PER_RING = 256
SMALLEST_SEGMENT, LARGEST_SEGMENT = 2**20, 2**24
"""Bytes. Small ones cost a file each; up to two of them, head and tail, are written with every checkpoint."""
STEP = "step"
"""Which of a segment's transitions an end is the end of: step · N + environment."""


class StoreState:
    """Saves and restores a store, and remembers which of its segments are on disk."""

    def __init__(self, store: Store, rewritten: tuple[str, ...] = ()) -> None:
        self.store, self._rewritten = store, rewritten
        self._stored: dict[int, StoredSegment] = {}
        self._stored_again: dict[int, StoredSegment] = {}

    def rows_per_segment(self) -> int:
        """Return how many steps make a segment: a small part of the ring, but neither a tiny nor a huge file."""
        store = self.store
        own = {name: column for name, column in store.columns.items() if name not in (AT, LEADS_TO)}
        row = sum(part[0].nbytes for part in leaves(own)) + store.num_envs * bytes_per_transition(store.memory)
        wanted = max(math.ceil(store.rows / SEGMENTS_PER_RING), math.ceil(SMALLEST_SEGMENT / row))
        return max(1, min(wanted, LARGEST_SEGMENT // row))

    def changed(self, index: Tensor) -> None:
        """Note that learning rewrote columns of these transitions."""
        if not self._stored_again:
            return
        if index.device.type != "cpu":
            self._stored_again = {}  # which ones would be a question to the device
            return
        step, rows = self.rows_per_segment(), self.store.rows
        number = self.store.generation(index) * rows + index // self.store.num_envs
        for cell in (number // step).unique().tolist():
            self._stored_again.pop(cell, None)

    # ---- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the steps held, without a copy where they lie in one stretch."""
        store = self.store
        state: dict[str, Any] = {"rows": store.rows, "written": store.written, "begin": store.begin}
        if not store.columns:
            return {**state, "segment_rows": 0, "head": {}, "segments": [], "tail": {}}
        state |= {"segment_rows": self.rows_per_segment(), **self._parts(store.name, self._stored, self._read)}
        if store.memory:
            newest = store.slot(store.written)
            state["newest"] = map_columns(store.memory, lambda part: part[newest : newest + store.num_envs])
        if self._rewritten:
            state["rewritten"] = self._parts(f"{store.name}-rewritten", self._stored_again, self._read_rewritten)
        return state

    def _parts(
        self, owner: str, stored: dict[int, StoredSegment], read: Callable[[int, int], dict[str, Any]]
    ) -> dict[str, Any]:
        store, step = self.store, self.rows_per_segment()
        # A step's end is known when the next one comes: the newest never is in a segment.
        first_cell, last_cell = math.ceil(store.begin / step), max(0, store.written - 1) // step
        for cell in [cell for cell in stored if cell < first_cell]:
            del stored[cell]
        tail_from = max(store.begin, last_cell * step)

        def segment(cell: int) -> Segment:
            first, end = cell * step, (cell + 1) * step

            def load() -> Mapping[str, Tensor]:
                if first < store.begin or end > store.written:
                    raise RuntimeError(
                        f"rows {first} to {end} of buffer '{store.name}' were overwritten before they were saved"
                    )
                return dict(named_leaves(read(first, end)))

            return Segment(owner, first, step, load, stored=stored.get(cell), on_stored=partial(stored.__setitem__, cell))

        return {
            "head": read(store.begin, min(first_cell * step, tail_from)),
            "segments": [segment(cell) for cell in range(first_cell, last_cell)],
            "tail": read(tail_from, store.written),
        }

    def _read(self, first: int, end: int) -> dict[str, Any]:
        store, own = self.store, (AT, LEADS_TO, *self._rewritten)
        rows = self._stretch({name: column for name, column in store.columns.items() if name not in own}, first, end)
        if not store.memory:
            return rows
        rows |= map_columns(store.memory, lambda part: self._slots_of(part, first, end))
        if store.ends:
            led = self._stretch({LEADS_TO: store.columns[LEADS_TO]}, first, end)[LEADS_TO].flatten()
            step = (led >= store.first_end).nonzero()[:, 0]
            ends = map_columns(store.memory, lambda part: part.index_select(0, led[step]))
            rows["ends"] = {STEP: step, **ends}
        return rows

    def _slots_of(self, part: Any, first: int, end: int) -> Tensor:
        """Return what steps `first` to `end` saw, (steps, N, ...), without a copy where that is one stretch of memory."""
        count = self.store.num_envs
        slots = self.store.slices(first, end, self.store.rows + 1)
        pieces = [part[each.start * count : each.stop * count].unflatten(0, (-1, count)) for each in slots]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _read_rewritten(self, first: int, end: int) -> dict[str, Any]:
        return self._stretch({name: self.store.columns[name] for name in self._rewritten}, first, end)

    def _stretch(self, columns: Mapping[str, Any], first: int, end: int, length: int | None = None) -> dict[str, Any]:
        rows = self.store.slices(first, end, length)
        if len(rows) == 1:
            return map_columns(columns, lambda column: column[rows[0]])
        return map_columns(columns, lambda column: torch.cat([column[each] for each in rows]))

    # ---- restoring ----------------------------------------------------------------------------------------------------

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the steps that were saved; the newest of them, if there is less room now."""
        store, written = self.store, state["written"]
        self._stored, self._stored_again = {}, {}
        if not state["tail"]:
            store.written, store.begin = written, state["begin"]
            return
        num_envs = state["tail"]["reward"].shape[1]
        if num_envs != store.num_envs:
            raise EtudeError(
                f"buffer '{store.name}' was saved with {num_envs} environments and can't go on with {store.num_envs}; set "
                "environment.num_envs back"
            )
        same = state["rows"] == store.rows
        first = max(state["begin"], written - store.rows)
        # Another ring has other rows: its steps are numbered anew, from 0 only if nothing came before.
        moved = 0 if same else first - (store.rows if first else 0)
        store.place_all(first - moved, written - moved)
        before: Any = None
        for number, saved in self._saved(state, first):
            before = self._place(saved, number, moved, before, first)
        if store.memory:
            newest = state.get("newest") if before is None else before
            at = store.slot(store.written)
            for part, value in zip(leaves_like(store.memory, newest or {}), leaves(newest or {}), strict=True):
                part[at : at + num_envs] = value
        if self._rewritten:
            again = state.get("rewritten") or {"head": {}, "segments": [], "tail": {}}
            for number, saved in self._saved({**state, **again}, first):
                self._copy_rows({name: store.flat[name] for name in self._rewritten}, saved, number, moved, first)
        if same and state["segment_rows"] == self.rows_per_segment():
            step = state["segment_rows"]
            for segments, stored in (
                (state["segments"], self._stored),
                (state.get("rewritten", {}).get("segments", ()), self._stored_again),
            ):
                stored |= {each.first // step: each.stored for each in segments if each.stored is not None}

    def _saved(self, state: Mapping[str, Any], first: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Yield what was saved, in order, with the number of its first step; all of it before `first` left out."""
        store, reached = self.store, state["begin"]
        for rows in (state["head"], *state["segments"], state["tail"]):
            if isinstance(rows, Segment):
                if rows.first != reached:
                    raise EtudeError(f"buffer '{store.name}': rows {reached} to {rows.first} are not in the checkpoint")
                number, reached = reached, reached + rows.count
                if reached > first:
                    yield number, self._checked(rows.load(), reached - number)
            elif rows:
                saved = dict(named_leaves(rows))
                number, reached = reached, reached + len(next(iter(saved.values())))
                if reached > number:
                    yield number, self._checked(saved, reached - number)
        if reached != state["written"]:
            raise EtudeError(f"buffer '{store.name}': the checkpoint has rows up to {reached} of {state['written']}")

    def _checked(self, saved: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
        saved = todays_names(saved)
        for name, part in saved.items():
            if len(part) != count and not name.startswith("ends."):
                raise EtudeError(f"buffer '{self.store.name}': '{name}' has {len(part)} rows where {count} belong")
        return saved

    def _place(self, saved: dict[str, Tensor], number: int, moved: int, before: Any, first: int) -> Any:
        """Put saved steps where they belong; returns where the last of them led, where that was saved with each step."""
        store, own = self.store, (AT, LEADS_TO, *self._rewritten)
        self._copy_rows({n: c for n, c in store.flat.items() if n not in own}, saved, number, moved, first)
        if not store.memory:
            return None
        self._copy_rows(store.memory, saved, number, moved, first, store.rows + 1)
        if f"ends.{STEP}" in saved:
            step = saved[f"ends.{STEP}"].cpu()
            self._place_ends(
                step // store.num_envs + number, step % store.num_envs, _tree(saved, "ends.observation"), first, moved
            )
            return None
        seen, led = _tree(saved, "observation"), _tree(saved, "next_observation")
        if not led:  # left out
            return None
        return self._place_differing(seen, led, number, moved, before, first)

    def _place_differing(self, seen: Any, led: Any, number: int, moved: int, before: Any, first: int) -> Any:
        """Of checkpoints that hold where each step led: what the next step did not see is an end."""
        after = map_columns(seen, lambda part: part[1:])
        if before is not None:
            led, after, number = _after(before, led), seen, number - 1
        count = len(next(leaves(after)))
        pairs = zip(leaves_like(led, after), leaves(after), strict=True)
        differs = torch.stack([(a[:count] != b).reshape(*b.shape[:2], math.prod(b.shape[2:])).any(2) for a, b in pairs]).any(0)
        step, env = differs.nonzero(as_tuple=True)
        self._place_ends((step + number).cpu(), env.cpu(), map_columns(led, lambda part: part[step, env]), first, moved)
        return map_columns(led, lambda part: part[-1])

    def _place_ends(self, number: Tensor, env: Tensor, observation: Mapping[str, Any], first: int, moved: int) -> None:
        held = (number >= first).nonzero()[:, 0]
        ends = map_columns(observation, lambda part: part[held.to(part.device)])
        self.store.place_ends(number[held] - moved, env[held], ends)

    def _copy_rows(
        self,
        columns: Mapping[str, Any],
        saved: Mapping[str, Tensor],
        number: int,
        moved: int,
        first: int,
        length: int | None = None,
    ) -> None:
        """Copy saved steps that begin at `number` to their rows of flat columns, those before `first` left out."""
        count = self.store.num_envs
        for name, column in named_leaves(columns):
            if name not in saved:
                raise EtudeError(f"buffer '{self.store.name}': '{name}' is not in the checkpoint")
            part, shape = saved[name], (count, *column.shape[1:])
            if part.shape[1:] != shape or part.dtype != column.dtype:
                was, now = _shown(part.dtype, part.shape[1:]), _shown(column.dtype, shape)
                raise EtudeError(f"buffer '{self.store.name}': '{name}' was saved as {was} and is {now} now")
            end = number + len(part) - moved
            part = part[max(0, first - number) :]
            for rows in self.store.slices(end - len(part), end, length):
                size = rows.stop - rows.start
                column[rows.start * count : rows.stop * count] = part[:size].flatten(0, 1)
                part = part[size:]


def _after(first: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with one more row before the others."""
    pairs = {name: (first[name], value) for name, value in rest.items()}
    return {n: _after(a, b) if isinstance(b, Mapping) else torch.cat([a[None], b]) for n, (a, b) in pairs.items()}


def _tree(saved: Mapping[str, Tensor], name: str) -> dict[str, Any]:
    """Return an observation of flat names as {"observation": tensor or a dict of tensors}; empty if there is none."""
    if name in saved:
        return {"observation": saved[name]}
    parts = {key.removeprefix(f"{name}."): value for key, value in saved.items() if key.startswith(f"{name}.")}
    return {"observation": parts} if parts else {}


def _shown(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"

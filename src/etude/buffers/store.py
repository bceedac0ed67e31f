"""A ring of vector steps in which every observation lies once.

Steps are numbered from the first one ever written, and step `a` lies in row `a % rows`. What it saw lies in slot `a` of
`rows + 1`, taken in turns; where it led lies in the slot after, which is what the next step sees:

    step       3        4        5 ■      6                    ■ the episode ends, and step 6 begins another
    slot    │  3  │  4  │  5  │  6  │  7  │                    slot 6: what step 6 saw; slot 7: where step 6 led, the newest
    ends    │  e  │                                            where step 5 led: copied here when step 6 came

Two columns say where each step's observations lie: `at` and `leads_to`. The ends are a ring for each environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.buffers.base import allocate, bytes_per_transition
from etude.buffers.columns import as_array, leaves, leaves_like, map_columns
from etude.buffers.frame_file import FrameFile, is_frame
from etude.compute.row import Row

AT, LEADS_TO = "at", "leads_to"
OBSERVATIONS = ("observation", "next_observation")
ROOM_FOR_ENDS = 250_000_000
"""Bytes. Every step may be an end where that takes no more, and as many as fit into it where it would."""
ROWS_OF_VIEWS = 256


class Store:
    """Columns of shape (rows, N, ...), and the observations. What is held lies in rows 0 to `held`, wherever the cursor is."""

    def __init__(self, rows: int, name: str, device: torch.device, *, keeps_ends: bool = True) -> None:
        self.rows, self.name, self.device = rows, name, device
        self.columns: dict[str, Any] = {}
        self.flat: dict[str, Any] = {}
        """The same memory as (rows · N, ...)."""
        self.memory: dict[str, Any] = {}
        """`observation`: every slot of every environment, then the ends of each: ((rows + 1) · N + N · ends, ...)."""
        self.num_envs = self.ends = 0
        self.written = 0
        """The number of the next step."""
        self.begin = 0
        """The number of the oldest step held."""
        self.has_dropped = False
        """Whether steps were given up because there was no more room for ends."""
        self.folder: Path | None = None
        """Where the frames of observations lie in a file; None: in memory."""
        self.keeps_ends = keeps_ends
        self._on_host = device.type == "cpu"
        self._arrays: list[tuple[str, np.ndarray]] = []
        self._views: list[tuple[Tensor, ...]] = []
        self._views_from = -1
        self._alike: list[list[int]] = []

    @property
    def held(self) -> int:
        """How many steps are held."""
        return self.written - self.begin

    @property
    def cursor(self) -> int:
        """The row of the next step: where the oldest one is, once the ring is full."""
        return self.written % self.rows

    @property
    def is_full(self) -> bool:
        """Whether the oldest steps make room for new ones."""
        return self.held >= self.rows or self.has_dropped

    @property
    def has_files(self) -> bool:
        """Whether some of the observations lie in a file."""
        return any(isinstance(part, FrameFile) for part in leaves(self.memory))

    @property
    def first_end(self) -> int:
        """Where the ends begin in memory."""
        return (self.rows + 1) * self.num_envs

    def allocate(self, row: Mapping[str, Any]) -> None:
        """Take the memory, for steps that look like this one (N, ...)."""
        count = self.num_envs = len(row["reward"])
        columns = {name: value for name, value in row.items() if name not in OBSERVATIONS}
        self.columns = allocate(columns, (self.rows, count), self.name, self.device)
        seen = {name: value for name, value in row.items() if name == "observation"}
        self.ends = room_for_ends(self.rows, count, bytes_per_transition(seen)) if seen and self.keeps_ends else 0
        self.memory = map_columns(seen, self._take_memory)
        kind = torch.int32 if self.first_end + count * self.ends < 2**31 else torch.int64
        for name, offset in ((AT, 0), (LEADS_TO, count)) if seen else ():
            places = torch.arange(offset, offset + self.rows * count, dtype=kind, device=self.device)
            self.columns[name] = places.view(self.rows, count)
        self.flat = map_columns(self.columns, lambda column: column.flatten(0, 1))
        self._env = torch.arange(count, dtype=kind, device=self.device)
        self._env_array = np.arange(count, dtype=np.int32 if kind is torch.int32 else np.int64)
        self._ends_of_env = torch.arange(count, device=self.device) * self.ends
        self.ends_seen = torch.zeros(count, dtype=torch.int64, device=self.device)
        """How many ends each environment has had so far."""
        is_bounded = 0 < self.ends < self.rows
        self.end_of = torch.full((count, self.ends if is_bounded else 0), -1, dtype=torch.int64, device=self.device)
        """Which step each end is the end of, where ends may have to make room for others."""
        self._look_again = self.written
        self._arrays, self._alike, self._views_from = [], [], -1

    def _take_memory(self, part: Tensor) -> Any:
        if self.folder is not None and is_frame(part[0].nbytes):
            return FrameFile(part, self.rows + 1, self.ends, self.folder, self.name)
        places = self.first_end + self.num_envs * self.ends
        return allocate({"observation": part}, (places,), self.name, self.device)["observation"]

    # ---- writing ------------------------------------------------------------------------------------------------------

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one step (N, ...) in; its tensors always come in the same order."""
        if self._on_host:
            self._copy_on_host(row)
        else:
            self._copy(row)
        self.written += 1
        self.begin = max(self.begin, self.written - self.rows)

    def slot(self, number: int) -> int:
        """Return where in memory the observations that step `number` saw begin."""
        return number % (self.rows + 1) * self.num_envs

    def _copy_on_host(self, row: Mapping[str, Any]) -> None:
        """Write through NumPy, whose indexing costs a fifth of torch's."""
        if not self._arrays:
            self._prepare_arrays(row)
        number, place = self.written, self.written % self.rows
        for name, array in self._arrays:
            value = row[name]
            array[place] = value if type(value) is np.ndarray else as_array(value)
        for name, arrays in self._nested:
            for array, part in zip(arrays, leaves(row[name]), strict=True):
                array[place] = as_array(part)
        if not self._slots:
            return
        slot = number % (self.rows + 1)
        after = slot + 1 if slot < self.rows else 0
        if self.ends and number > self.begin:
            starts = row["is_first"]
            starts = starts if type(starts) is np.ndarray else as_array(starts)
            if np.count_nonzero(starts):  # a tenth of what any() costs
                self._keep_ends(starts, slot)
        if number >= self.rows:  # on the first lap they are there already
            self._at[place] = self._env_array + slot * self.num_envs if self._after[0] != slot else self._after[1]
            self._after = (after, self._env_array + after * self.num_envs)
            self._leads_to[place] = self._after[1]
        for key, where in (("observation", slot), ("next_observation", after)):
            value = row.get(key)
            if type(value) is np.ndarray:
                self._slots[0][where] = value
            elif value is not None:
                for array, part in zip(self._slots, leaves({key: value}), strict=True):
                    array[where] = part if type(part) is np.ndarray else as_array(part)

    def _prepare_arrays(self, row: Mapping[str, Any]) -> None:
        given = {name: row[name] for name in row if name in self.columns}
        self._arrays = [(n, as_array(self.columns[n])) for n, value in given.items() if not isinstance(value, Mapping)]
        nested = {name: value for name, value in given.items() if isinstance(value, Mapping)}
        self._nested = [(n, [as_array(part) for part in leaves_like(self.columns[n], value)]) for n, value in nested.items()]
        memory = list(leaves_like(self.memory, {name: row[name] for name in self.memory}))
        self._slots: list[Any] = [part.slots() if isinstance(part, FrameFile) else self._by_slot(part) for part in memory]
        self._end_arrays: list[Any] = [
            part.ends() if isinstance(part, FrameFile) else as_array(part)[self.first_end :] for part in memory
        ]
        self._after = (-1, self._env_array)
        if memory:
            self._at, self._leads_to = (self.columns[name].numpy() for name in (AT, LEADS_TO))

    def _by_slot(self, part: Tensor) -> np.ndarray:
        return as_array(part)[: self.first_end].reshape(self.rows + 1, self.num_envs, *part.shape[1:])

    def _keep_ends(self, starts: np.ndarray, slot: int) -> None:
        """Copy where the last step led to the ends, in the environments where the next one begins an episode."""
        last = (self.written - 1) % self.rows
        seen, end_of = self.ends_seen.numpy(), self.end_of.numpy()
        for env in starts.nonzero()[0]:
            spot = seen[env] % self.ends
            seen[env] += 1
            if end_of.size:
                if end_of[env, spot] >= self.begin:
                    self._drop_before(int(end_of[env, spot]) + 1)
                end_of[env, spot] = self.written - 1
            place = env * self.ends + spot
            for ends, slots in zip(self._end_arrays, self._slots, strict=True):
                ends[place] = slots[slot, env]
            self._leads_to[last, env] = self.first_end + place

    def _copy(self, row: Mapping[str, Any]) -> None:
        block, place = divmod(self.cursor, ROWS_OF_VIEWS)
        if block != self._views_from:
            # Views of many rows at once: a fifth of the cost of indexing each column at each step.
            rows = slice(block * ROWS_OF_VIEWS, (block + 1) * ROWS_OF_VIEWS)
            given = {name: value for name, value in row.items() if name in self.columns}
            columns = leaves_like(self.columns, given)
            self._views = list(zip(*(column[rows].unbind() for column in columns), strict=True))
            self._views_from = block
        views, values = list(self._views[place]), list[Tensor]()
        for name, value in row.items():
            if name in self.columns:
                values += leaves(value) if isinstance(value, Mapping) else (value,)
        if self.memory:
            here, after = self.slot(self.written), self.slot(self.written + 1)
            if self.ends and not (isinstance(row, Row) and row.begins is False):
                self._keep_ends_on_device(row, here)
            if self.written >= self.rows:  # on the first lap they are there already
                for name, start in ((AT, here), (LEADS_TO, after)):
                    torch.add(self._env, start, out=self.columns[name][self.cursor])
            for key, start in (("observation", here), ("next_observation", after)):
                if key in row:
                    parts = list(leaves({key: row[key]}))
                    memory = leaves_like(self.memory, {"observation": row[key]})
                    views += [part[start : start + self.num_envs] for part in memory]
                    values += parts
        if not self._alike:
            self._alike = _alike(views, values)
        for places in self._alike:
            torch._foreach_copy_([views[i] for i in places], [values[i] for i in places])  # type: ignore[reportPrivateImportUsage] # torch has no public name for it

    def _keep_ends_on_device(self, row: Mapping[str, Any], here: int) -> None:
        """The same without asking which episodes begin: where each step led is copied, and kept only if one does."""
        if self.end_of.numel() and self.written >= self._look_again:
            self._make_room()
        if self.written == self.begin:
            return
        spot = self.ends_seen.remainder(self.ends).add_(self._ends_of_env)
        starts = row["is_first"].to(self.device)
        for part in leaves(self.memory):
            part[self.first_end :].index_copy_(0, spot, part[here : here + self.num_envs])
        led = self.columns[LEADS_TO][(self.written - 1) % self.rows]
        led.copy_(torch.where(starts, spot + self.first_end, led))
        if self.end_of.numel():
            self.end_of.view(-1).index_copy_(0, spot, torch.where(starts, self.written - 1, self.end_of.view(-1)[spot]))
        self.ends_seen += starts

    def _make_room(self) -> None:
        """See which ends may be written over soon, and hold the steps before them no longer. Asks the device."""
        soon = max(1, self.ends // 4)
        spots = (self.ends_seen[:, None] + torch.arange(soon + 1, device=self.device)) % self.ends
        newest = int(self.end_of.gather(1, spots).amax())
        if newest >= self.begin:
            self._drop_before(newest + 1)
        self._look_again = self.written + soon

    def _drop_before(self, number: int) -> None:
        self.begin, self.has_dropped = max(self.begin, number), True

    def clear(self) -> None:
        """Hold nothing. Numbers go on from the next lap, so that no row's generation comes twice."""
        if self.held or self.cursor:
            self.written = (self.written // self.rows + 1) * self.rows
        self.begin, self.has_dropped = self.written, False

    # ---- reading ------------------------------------------------------------------------------------------------------

    def generation(self, index: Tensor) -> Tensor:
        """Return how often the row of each transition (row · N + environment) had been written over before."""
        lap = self.written // self.rows
        return lap - (index >= self.cursor * self.num_envs).to(torch.int64)

    def slices(self, first: int, end: int, length: int | None = None) -> list[slice]:
        """Return the rows of steps `first` to `end`, in order: one stretch, or two around the ring's end."""
        length = self.rows if length is None else length
        low, count = first % length, end - first
        over = low + count - length
        return [slice(low, low + count)] if over <= 0 else [slice(low, length), slice(0, over)]

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        held = (*leaves(self.columns), *leaves(self.memory), *([self.end_of, self.ends_seen] if self.columns else []))
        return sum(tensor.nbytes for tensor in held)

    # ---- restoring ----------------------------------------------------------------------------------------------------

    def place_all(self, begin: int, written: int) -> None:
        """Hold steps `begin` to `written`, none of which is an end yet, and no ends."""
        self.written, self.begin, self.has_dropped, self._look_again = written, begin, False, written
        self.ends_seen.zero_()
        self.end_of.fill_(-1)
        number = torch.arange(begin, max(written, self.rows if begin == 0 else 0), device=self.device)
        for name, offset in ((AT, 0), (LEADS_TO, 1)) if self.memory else ():
            slots = (number + offset) % (self.rows + 1) * self.num_envs
            self.columns[name][number % self.rows] = (slots[:, None] + self._env).to(self._env.dtype)

    def place_ends(self, number: Tensor, env: Tensor, observation: Mapping[str, Any]) -> None:
        """Take ends back: of steps (K,) of environments (K,), in their order, as they were seen (K, ...)."""
        for each in env.unique().tolist() if self.ends else ():
            own = (env == each).nonzero()[:, 0][-self.ends :]
            steps = number[own].to(self.device)
            spot = (int(self.ends_seen[each]) + torch.arange(len(own), device=self.device)) % self.ends
            if self.end_of.numel():
                lost = int(self.end_of[each, spot].amax())
                if lost >= self.begin:
                    self._drop_before(lost + 1)
                self.end_of[each, spot] = steps
            place = self.first_end + each * self.ends + spot
            for part, saved in zip(leaves_like(self.memory, observation), leaves(observation), strict=True):
                part[place] = saved[own].to(self.device)
            self.columns[LEADS_TO][steps % self.rows, each] = place.to(self._env.dtype)
            self.ends_seen[each] += len(own)


def room_for_ends(rows: int, num_envs: int, each: int) -> int:
    """Return for how many ends of each environment there is room, if one takes so many bytes."""
    return min(rows, max(4, ROOM_FOR_ENDS // max(1, each * num_envs)))


def _alike(views: Sequence[Tensor], values: Sequence[Tensor]) -> list[list[int]]:
    """Return the places of tensors of the same types: a device copies each such group in one launch."""
    groups: dict[Any, list[int]] = {}
    for place, (view, value) in enumerate(zip(views, values, strict=True)):
        groups.setdefault((view.dtype, value.dtype, value.device), []).append(place)
    return list(groups.values())

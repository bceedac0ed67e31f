"""Where the episodes in a store begin and end, kept up to date on the device as rows come in.

Each row knows its step within its episode. The last row of an episode is noted in the slot of its first:

    slot      0    1    2    3    4    5        two episodes of one environment: rows 6 to 8, and 9 to the newest, 10
    step      0    1    2    0    1             (slot 5 still holds row 5, the end of an older episode whose beginning is
    last      8    .    .   10    .    .         overwritten: its last row is in `oldest`)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from etude.buffers.store import Store

STEP = "episode_step"
"""The column that says how many steps of its episode came before a transition."""


class Episodes:
    """Finds the first and the last row held of each transition's episode; one that goes on ends at its newest row."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known_from = 0  # the first step that was noted, or found in what was loaded
        self._goes_on = torch.zeros(0, dtype=torch.bool)
        self._step = self._last = self._oldest = torch.zeros(0, dtype=torch.int64)

    def start(self) -> None:
        """Begin with an empty store whose memory is taken."""
        store = self.store
        count, self._known_from = store.num_envs, store.begin
        self._env = torch.arange(count, device=store.device)
        self._step = torch.zeros(count, dtype=torch.int64, device=store.device)
        self._goes_on = torch.zeros(count, dtype=torch.bool, device=store.device)
        self._last = torch.zeros(store.rows * count, dtype=torch.int64, device=store.device)
        self._oldest = torch.zeros(count, dtype=torch.int64, device=store.device)

    def next_step(self, row: Mapping[str, Any], device: torch.device) -> Tensor:
        """Return the step within its episode of each transition of a row that is about to be added. (N,)"""
        is_first = row["is_first"].to(device)
        if not len(self._step):
            return torch.zeros(len(is_first), dtype=torch.int64, device=device)
        return torch.where(self._goes_on & ~is_first, self._step + 1, 0)

    def add(self, row: Mapping[str, Any], step: Tensor) -> None:
        """Note a row; it is not in the store yet."""
        store = self.store
        number, slot = store.written, store.cursor
        if number - store.rows >= self._known_from:  # a row goes, and perhaps it is its episode's first
            loses_first = store.columns[STEP][slot] == 0
            noted = self._last[slot * store.num_envs : (slot + 1) * store.num_envs]
            self._oldest = torch.where(loses_first, noted, self._oldest)
        first = number - step
        self._last.scatter_(0, self._place(first, self._env), number)
        oldest_after = max(self._known_from, number + 1 - store.rows)
        self._oldest = torch.where(first < oldest_after, number, self._oldest)
        self._step = step
        self._goes_on = ~(row["terminated"] | row["truncated"]).to(store.device)

    def clear(self) -> None:
        """Forget the episodes; what comes next begins new ones."""
        self._goes_on, self._known_from = torch.zeros_like(self._goes_on), self.store.begin

    def bounds(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the number of each transition's row, and of the first and last rows held of its episode."""
        store = self.store
        env = index % store.num_envs
        number = store.generation(index) * store.rows + index // store.num_envs
        first = number - store.flat[STEP][index]
        is_lost = first < max(self._known_from, store.written - store.rows)
        last = torch.where(is_lost, self._oldest[env], self._last[self._place(first, env)])
        return number, first.clamp(min=store.begin), last

    def rebuild(self) -> None:
        """Find the episodes in a store that was loaded."""
        self.start()
        store = self.store
        if not store.held:
            return
        place = torch.arange(store.begin * store.num_envs, store.written * store.num_envs, device=store.device)
        number, env = place // store.num_envs, place % store.num_envs
        first = number - store.flat[STEP][self._place(number, env)]
        is_whole = first >= store.begin
        self._last.scatter_reduce_(0, torch.where(is_whole, self._place(first, env), 0), number * is_whole, "amax")
        self._oldest.scatter_reduce_(0, env, number * ~is_whole, "amax")
        newest = (store.written - 1) % store.rows
        self._step = store.columns[STEP][newest].clone()
        self._goes_on = ~(store.columns["terminated"][newest] | store.columns["truncated"][newest])

    def _place(self, first: Tensor, env: Tensor) -> Tensor:
        return first % self.store.rows * self.store.num_envs + env

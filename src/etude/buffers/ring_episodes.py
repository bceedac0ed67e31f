"""Where the episodes in a ring begin and end, kept up to date on the device as rows come in.

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

from etude.buffers.ring import Ring

STEP = "episode_step"
"""The column that says how many steps of its episode came before a transition."""


class RingEpisodes:
    """Finds the first and the last row held of each transition's episode; one that goes on ends at its newest row."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._goes_on = torch.zeros(0, dtype=torch.bool)
        self._step = self._last = self._oldest = torch.zeros(0, dtype=torch.int64)

    def start(self) -> None:
        """Begin with an empty ring whose memory is taken."""
        ring = self.ring
        count = ring.num_envs
        self._env = torch.arange(count, device=ring.device)
        self._step = torch.zeros(count, dtype=torch.int64, device=ring.device)
        self._goes_on = torch.zeros(count, dtype=torch.bool, device=ring.device)
        self._last = torch.zeros(ring.rows * count, dtype=torch.int64, device=ring.device)
        self._oldest = torch.zeros(count, dtype=torch.int64, device=ring.device)

    def next_step(self, row: Mapping[str, Any], device: torch.device) -> Tensor:
        """Return the step within its episode of each transition of a row that is about to be added. (N,)"""
        is_first = row["is_first"].to(device)
        if not len(self._step):
            return torch.zeros(len(is_first), dtype=torch.int64, device=device)
        return torch.where(self._goes_on & ~is_first, self._step + 1, 0)

    def add(self, row: Mapping[str, Any], step: Tensor) -> None:
        """Note a row; it is not in the ring yet."""
        ring = self.ring
        number, slot = ring.written, ring.cursor
        if ring.held == ring.rows:  # the oldest row goes, and perhaps it is its episode's first
            loses_first = ring.columns[STEP][slot] == 0
            noted = self._last[slot * ring.num_envs : (slot + 1) * ring.num_envs]
            self._oldest = torch.where(loses_first, noted, self._oldest)
        first = number - step
        self._last.scatter_(0, self._place(first, self._env), number)
        oldest_after = max(ring.begin, number + 1 - ring.rows)
        self._oldest = torch.where(first < oldest_after, number, self._oldest)
        self._step = step
        self._goes_on = ~(row["terminated"] | row["truncated"]).to(ring.device)

    def clear(self) -> None:
        """Forget the episodes; what comes next begins new ones."""
        self._goes_on = torch.zeros_like(self._goes_on)

    def bounds(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the number of each transition's row, and of the first and last rows held of its episode."""
        ring = self.ring
        env = index % ring.num_envs
        number = ring.generation(index) * ring.rows + index // ring.num_envs
        first = number - ring.flat[STEP][index]
        last = torch.where(first < ring.begin, self._oldest[env], self._last[self._place(first, env)])
        return number, first.clamp(min=ring.begin), last

    def rebuild(self) -> None:
        """Find the episodes in a ring that was loaded."""
        self.start()
        ring = self.ring
        if not ring.held:
            return
        index = torch.arange(ring.held * ring.num_envs, device=ring.device)
        env = index % ring.num_envs
        number = ring.generation(index) * ring.rows + index // ring.num_envs
        first = number - ring.flat[STEP][: len(index)]
        is_whole = first >= ring.begin
        self._last.scatter_reduce_(0, torch.where(is_whole, self._place(first, env), 0), number * is_whole, "amax")
        self._oldest.scatter_reduce_(0, env, number * ~is_whole, "amax")
        newest = (ring.written - 1) % ring.rows
        self._step = ring.columns[STEP][newest].clone()
        self._goes_on = ~(ring.columns["terminated"][newest] | ring.columns["truncated"][newest])

    def _place(self, first: Tensor, env: Tensor) -> Tensor:
        return first % self.ring.rows * self.ring.num_envs + env

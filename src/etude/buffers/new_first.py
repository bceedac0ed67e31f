"""What is new is learnt from once before chance decides: the online queue of DreamerV3 (Hafner et al. 2023).

The steps of each environment are cut into windows of L that don't overlap. One that is complete waits until it was drawn:

    steps      origin     + L        + 2 L      + 3 L                        L = 4, two environments
               ├──────────┼──────────┼──────────┼─────── …
    windows      0, 1       2, 3       4, 5       6, 7
                              └ taken = 3: the next batch begins with windows 3, 4, 5; the rest of it is uniform

Those that were overwritten before their turn came are left out. What waits follows from two numbers, which the host knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from etude.buffers.places import Bounds, Uniform


class NewFirst(Uniform):
    """Uniform places, after windows of `length` steps that were never drawn, the oldest first."""

    draws_on_device = False

    def __init__(self, bounds: Bounds, length: int) -> None:
        super().__init__(bounds)
        self.length = length
        self._origin = self._taken = 0

    def find(self, random: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """New windows in the first places of the first batches; the numbers mean the others."""
        index = super().find(random, device)["index"]
        new = self._next(index.numel())
        if not len(new):
            return {"index": index}
        return {"index": torch.cat([new.to(index.device), index.reshape(-1)[len(new) :]]).view(index.shape)}

    @property
    def waiting(self) -> int:
        """How many windows are complete and were not drawn yet."""
        first, end = self._windows()
        return end - max(first, self._taken)

    def _windows(self) -> tuple[int, int]:
        """Return the first window that can be drawn, and the one after the last."""
        bounds, count = self.bounds, self.store.num_envs
        begun = [-(-(number - self._origin) // self.length) * count for number in (bounds.first, bounds.end)]
        return max(0, begun[0]), max(0, *begun)

    def _next(self, most: int) -> Tensor:
        """Take up to `most` windows, and return where they begin."""
        first, end = self._windows()
        begin = max(first, self._taken)
        window = torch.arange(begin, max(begin, min(end, begin + most)))
        self._taken = begin + len(window)
        count = self.store.num_envs
        number = self._origin + window // count * self.length
        return number % self.store.rows * count + window % count

    def clear(self) -> None:
        """Nothing waits; windows begin with the next step."""
        self._origin, self._taken = self.store.begin, 0

    def state_dict(self) -> dict[str, Any]:
        """Return what waits."""
        return {"new_first": {"origin": self._origin, "taken": self._taken, "length": self.length}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the same windows wait; of a buffer that did not know them, or knew others, those that begin from here on."""
        saved = state.get("new_first", {})
        if saved.get("length") == self.length:
            moved = state["written"] - self.store.written  # where the ring has another size, steps have other numbers
            self._origin, self._taken = saved["origin"] - moved, saved["taken"]
        else:
            self._origin, self._taken = self.store.written, 0

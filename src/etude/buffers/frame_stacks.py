"""Observations that are stacks of frames, kept as single ones: each stack shares all but one frame with the one before it.

    stack of row t     frame t-3, t-2, t-1, t          what is stored of row t: frame t, and the newest frame of where it led
    where row t led    frame t-2, t-1, t, new          (which is frame t+1, unless an episode ended there)

An episode's first rows have no such past; each row knows how many of its episode came before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import torch
from torch import Tensor

from etude.buffers.ring import Ring
from etude.errors import UserError

AGE = "frame_age"
"""The column that says how many rows of its episode came before a transition, up to as many as a stack reaches back."""
STACKED = ("observation", "next_observation")


class FrameStacks:
    """Takes the newest frame of stacks that come in, and puts stacks together again."""

    def __init__(self, count: int, ring: Ring, name: str) -> None:
        if ring.rows < count:
            raise UserError(f"buffers.{name}.frame_stack={count}: the buffer holds only {ring.rows} steps; raise its capacity")
        self._count, self._ring, self._name = count, ring, name
        self._start: Literal["repeat", "zeros"] | None = None
        self._reach = torch.arange(count - 1, 0, -1, device=ring.device)  # how far back each frame lies, the oldest first

    def single(self, row: Mapping[str, Any], is_first: Tensor) -> dict[str, Any]:
        """Return a row (N, ...) with the newest frames alone, and each row's age; it is not in the ring yet."""
        frames = {key: self._newest(row[key]) for key in STACKED if key in row}
        return {**row, **frames, AGE: self._age(is_first)}

    def join(self, batch: dict[str, Any], index: Tensor) -> dict[str, Any]:
        """Put stacks in the place of the frames of transitions at `index` (n,)."""
        for key in STACKED:
            if key in batch:
                batch[key] = self._stacks(batch[key], index, 1 if key == "next_observation" else 0)
        return batch

    def whole(self, index: Tensor) -> Tensor:
        """Return where the transitions lie that are `index` (...) of those with a whole stack, the oldest first.

        Once rows are written over, the oldest ones that are held have lost a part of theirs.
        """
        ring = self._ring
        first = ring.begin + self.lost
        row, env = index // ring.num_envs, index % ring.num_envs
        return (first + row) % ring.rows * ring.num_envs + env

    @property
    def lost(self) -> int:
        """How many of the rows held have lost a part of their stack."""
        return min(self._count - 1, max(0, self._ring.held - 1)) if self._ring.begin else 0

    def check(self, space: gymnasium.Space[Any]) -> None:
        """Raise UserError if observations of a space are no stacks of so many frames."""
        self._check_shape(None if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple) else space.shape or ())

    def _check_shape(self, shape: Sequence[int] | None) -> None:
        problem = None
        if shape is None:
            problem = "observations of several parts are not supported"
        elif not shape or shape[0] % self._count:
            problem = f"observations of shape {tuple(shape)} are no {self._count} frames along their first dimension"
        if problem:
            raise UserError(f"buffers.{self._name}.frame_stack={self._count}: {problem}; set it to null")

    def _newest(self, stack: Any) -> Tensor:
        self._check_shape(stack.shape[1:] if isinstance(stack, Tensor) else None)
        return stack[:, stack.shape[1] - stack.shape[1] // self._count :]

    def _age(self, is_first: Tensor) -> Tensor:
        ring = self._ring
        is_first = is_first.to(ring.device)
        if not ring.held:
            return torch.zeros(len(is_first), dtype=torch.int64, device=ring.device)
        before = ring.columns[AGE][(ring.written - 1) % ring.rows]
        return torch.where(is_first, 0, (before + 1).clamp(max=self._count - 1))

    def note_start(self, row: Mapping[str, Any]) -> None:
        """See in the first row of all what stands for the past where an episode begins: its first frame, or zeros."""
        stack = row["observation"]
        newest = self._newest(stack)
        past = stack.unflatten(1, (self._count, -1))[:, :-1]
        if bool((past == newest.unsqueeze(1)).all()):
            self._start = "repeat"
        elif not bool(past.any()):
            self._start = "zeros"
        else:
            raise UserError(
                f"buffers.{self._name}.frame_stack={self._count}: episodes begin with a past that is neither their first frame "
                "nor zeros, and would not be put together as they were; set it to null"
            )

    def _stacks(self, newest: Tensor, index: Tensor, later: int) -> Tensor:
        """(n, C, ...) → (n, count · C, ...); `later` is 1 where the newest frame is the one after its row's."""
        ring = self._ring
        age = ring.flat[AGE].index_select(0, index)[:, None]  # (n, 1)
        back = (self._reach - later)[None]  # (1, count - 1)
        places = (index[:, None] - torch.minimum(back, age) * ring.num_envs) % len(ring.flat[AGE])
        frames = ring.flat["observation"].index_select(0, places.reshape(-1))
        past = frames.view(*places.shape, *frames.shape[1:])
        if self._start == "zeros":
            past = past.masked_fill((back > age).view(*places.shape, *[1] * (past.ndim - 2)), 0)
        return torch.cat([past.flatten(1, 2), newest], 1)

    def state_dict(self) -> dict[str, Any]:
        """Return how episodes begin."""
        return {"start": self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin episodes as before."""
        self._start = state["start"]

"""Observations that are stacks of frames, kept as single ones: each stack shares all but one frame with the one before it.

    stack of step t     frame t-3, t-2, t-1, t          what is stored of step t: frame t, and the newest frame of where it led
    where step t led    frame t-2, t-1, t, new          (which is frame t+1, unless an episode ended there)

An episode's first steps have no such past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor

from etude.buffers.store import AT, LEADS_TO, OBSERVATIONS
from etude.buffers.views import Held
from etude.compute.row import Row
from etude.errors import UserError


class FrameStacks:
    """Takes the newest frame of stacks that come in, and puts stacks together again."""

    needs = ("is_first", "observation")

    def __init__(self, count: int, rows: int, name: str) -> None:
        if rows < count:
            raise UserError(f"buffers.{name}.frame_stack={count}: the buffer holds only {rows} steps; raise its capacity")
        self.count, self._name = count, name
        self.reach = (count - 1, 0)
        self._start: Literal["repeat", "zeros"] | None = None

    def single(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step (N, ...) with the newest frames alone."""
        single = Row({**row, **{key: self._newest(row[key]) for key in OBSERVATIONS if key in row}})
        single.begins = row.begins if isinstance(row, Row) else None
        return single

    def __call__(self, held: Held, index: Tensor, later: int) -> Tensor:
        """Return stacks (..., count · C, *frame) of transitions; `later` is 1 for those where they led."""
        newest = held.remembered(LEADS_TO if later else AT, index)
        index, shape = index.reshape(-1), index.shape
        newest = newest.view(-1, *newest.shape[len(shape) :])
        steps = torch.arange(self.count - 1, device=index.device)
        firsts = held.take("is_first", held.ahead(index[:, None], -steps))  # (n, count - 1): here, one step before, ...
        age = (~firsts).cumprod(1).sum(1, keepdim=True)  # how many of its episode's steps come before each one
        back = (self.count - 1 - steps - later)[None]  # how far back each frame lies, the oldest first
        frames = held.remembered(AT, held.ahead(index[:, None], -torch.minimum(back, age)))
        if self._start == "zeros":
            frames = frames.masked_fill((back > age).view(*frames.shape[:2], *[1] * (frames.ndim - 2)), 0)
        stack = torch.cat([frames.flatten(1, 2), newest], 1)
        return stack.view(*shape, *stack.shape[1:])

    def check(self, space: gymnasium.Space[Any]) -> None:
        """Raise UserError if observations of a space are no stacks of so many frames."""
        self._check_shape(None if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple) else space.shape or ())

    def _check_shape(self, shape: Sequence[int] | None) -> None:
        problem = None
        if shape is None:
            problem = "observations of several parts are not supported"
        elif not shape or shape[0] % self.count:
            problem = f"observations of shape {tuple(shape)} are no {self.count} frames along their first dimension"
        if problem:
            raise UserError(f"buffers.{self._name}.frame_stack={self.count}: {problem}; set it to null")

    def _newest(self, stack: Any) -> Any:
        self._check_shape(stack.shape[1:] if isinstance(stack, Tensor | np.ndarray) else None)
        return stack[:, stack.shape[1] - stack.shape[1] // self.count :]

    def note_start(self, observation: Any) -> None:
        """See in the first observation of all what stands for the past where an episode begins: its first frame, or zeros."""
        newest = self._newest(observation)
        past = observation.unflatten(1, (self.count, -1))[:, :-1]
        if bool((past == newest.unsqueeze(1)).all()):
            self._start = "repeat"
        elif not bool(past.any()):
            self._start = "zeros"
        else:
            raise UserError(
                f"buffers.{self._name}.frame_stack={self.count}: episodes begin with a past that is neither their first frame "
                "nor zeros, and would not be put together as they were; set it to null"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how episodes begin."""
        return {"start": self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin episodes as before."""
        self._start = state["start"]

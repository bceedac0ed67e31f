"""Whole episodes out of rollouts that begin and end amid them.

A rollout (T, N, ...) cuts episodes at its edges. The steps of an episode that has not ended wait here and come back before
the next rollout, so that every step of every episode is learnt from once, when its return is known:

    rollout 1:  a a a | b b b b           b waits
    rollout 2:  b b b b   b b | c c c     b is whole now; c waits
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from etude.compute.trees import joined, map_tree
from etude.errors import EtudeError

LONGEST_EPISODE = 100_000
"""Vector steps of one episode beyond which waiting for its end is a mistake rather than patience."""


class Stretch(NamedTuple):
    """A stretch of experience (L + T, N, ...): what waited, and a rollout."""

    columns: dict[str, Any]
    held: Tensor
    """Which rows are real; the others fill up the environments in which less waited."""


class WaitingSteps:
    """The steps of unfinished episodes, kept from one rollout to the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._columns: dict[str, Any] = {}
        self._held: Tensor | None = None

    def before(self, rollout: Mapping[str, Any]) -> Stretch:
        """Return a rollout's columns with what waited put before them."""
        held = torch.ones_like(rollout["ended"])
        if self._held is None:
            return Stretch(dict(rollout), held)
        return Stretch(joined([self._columns, rollout]), torch.cat([self._held, held]))

    def keep(self, stretch: Stretch, closed: Tensor) -> None:
        """Keep the steps after each environment's last `closed` one (T, N); copies, so that buffers can be reused."""
        last = len(closed) - 1 - closed.flip(0).int().argmax(0)  # of environments in which any is closed
        first = torch.where(closed.any(0), last + 1, 0)
        steps = torch.arange(len(closed), device=closed.device).unsqueeze(1)
        open_rows = (steps >= first) & stretch.held
        length = int(open_rows.any(1).sum())
        if length > LONGEST_EPISODE:
            raise EtudeError(
                f"an episode has not ended in {length:,} steps, and only whole episodes can be learnt from; "
                "set environment.max_episode_steps"
            )
        self._columns = _last_rows(stretch.columns, length) if length else {}
        self._held = open_rows[len(closed) - length :].clone() if length else None

    def state_dict(self) -> dict[str, Any]:
        """Return what waits."""
        return {"columns": self._columns, "held": self._held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on waiting."""
        self._columns = map_tree(self._own, state["columns"])
        self._held = None if state["held"] is None else self._own(state["held"])

    def _own(self, saved: Tensor) -> Tensor:
        return saved.to(self._device, copy=True)


def _last_rows(columns: Mapping[str, Any], length: int) -> dict[str, Any]:
    return map_tree(lambda column: column[len(column) - length :].clone(), columns)

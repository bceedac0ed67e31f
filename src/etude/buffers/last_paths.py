"""The last whole episodes of a training, for whoever wants to look at them.

Vector steps go into a ring, as they come; where episodes begin and end is found when somebody asks, so that collecting asks a
device for nothing. With a limit of L steps, n paths of N copies lie within the last (⌈n/N⌉ + 1) · L vector steps:

    |<---------- L ---------->|<------- ⌈n/N⌉ · L ------->|
    .....[ begins here at the earliest      ends in here ].    in these, every copy ends ⌈n/N⌉ episodes or more
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.buffers.base import allocate, bytes_of_step, in_bytes
from etude.buffers.columns import copy_columns, leaves, leaves_like, map_columns, todays_names
from etude.errors import ConfigError

MOST_BYTES = 2**28
"""What all of it may take, in memory and in every checkpoint."""
COLUMNS = ("observation", "is_first", "action", "reward", "terminated", "truncated", "next_observation")


class LastPaths:
    """Keeps the last `count` whole episodes of the first `count` copies, or of all where there are fewer."""

    def __init__(self, count: int, num_envs: int, longest: int) -> None:
        """`longest` is how many vector steps an episode can last."""
        self.count, self.copies = count, min(count, num_envs)
        self.steps = (math.ceil(count / self.copies) + 1) * longest
        self._columns: dict[str, Any] = {}
        self._written = 0

    @classmethod
    def of(cls, environment: Any, count: int, key: str = "training.keep_paths") -> LastPaths:
        """Make room for the paths of an environment; refuses what has no bound, or too high a one."""
        limit = environment.base.max_episode_steps
        if limit is None:
            raise ConfigError(f"{key}={count}: how long can a path be? set environment.max_episode_steps")
        paths = cls(count, environment.num_envs, math.ceil(limit / environment.action_repeat))
        each = bytes_of_step(environment.single_observation_space, environment.single_action_space)
        needed = each * paths.steps * paths.copies
        if needed > MOST_BYTES:
            raise ConfigError(
                f"{key}={count}: paths of up to {limit:,} steps would take {in_bytes(needed)}, and at most "
                f"{in_bytes(MOST_BYTES)} are kept; lower it, or environment.max_episode_steps"
            )
        return paths

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy what is kept of one vector step (N, ...), in tensors or arrays."""
        kept = {name: _first(row[name], self.copies) for name in COLUMNS}
        if not self._columns:
            self._columns = allocate(kept, (self.steps, self.copies), "last paths", kept["reward"].device)
        place = self._written % self.steps
        for column, value in zip(leaves_like(self._columns, kept), leaves(kept), strict=True):
            column[place].copy_(value)
        self._written += 1

    def read(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the last paths, the newest last; fewer where fewer have ended. Reads the device."""
        return whole_paths(self._in_order(), self.count if count is None else min(count, self.count))

    def state_dict(self) -> dict[str, Any]:
        """Return the steps that are held, the oldest first: (T, copies, ...)."""
        return {"count": self.count, "rows": self._in_order()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hold the steps that were saved, as far as they are those of the same copies."""
        rows, self._columns, self._written = todays_names(state["rows"]), {}, 0
        if not rows or rows["reward"].shape[1] < self.copies:
            return
        rows = map_columns(rows, lambda column: column[-self.steps :, : self.copies])
        example = map_columns(rows, lambda column: column[0])
        self._columns = allocate(example, (self.steps, self.copies), "last paths", rows["reward"].device)
        self._written = len(rows["reward"])
        copy_columns(map_columns(self._columns, lambda column: column[: self._written]), rows)

    def _in_order(self) -> dict[str, Any]:
        held, place = min(self._written, self.steps), self._written % self.steps
        if held < self.steps:
            return map_columns(self._columns, lambda column: column[:held].clone())
        return map_columns(self._columns, lambda column: column.roll(-place, 0))


def whole_paths(rows: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the last `count` episodes that begin and end within rows (T, N, ...), in the order of their ends.

    A path has the keys of those that `etude.play` returns, as tensors: observations, actions, rewards, next_observations,
    terminated, truncated, and its return and length.
    """
    if not rows or count < 1:
        return []
    is_first = rows["is_first"].cpu().numpy()
    ended = (rows["terminated"] | rows["truncated"]).cpu().numpy()
    spans = []
    for copy in range(is_first.shape[1]):
        begins, ends = np.flatnonzero(is_first[:, copy]), np.flatnonzero(ended[:, copy])
        last_begin = np.searchsorted(begins, ends, side="right") - 1
        spans += [(int(end), copy, int(begins[i])) for end, i in zip(ends, last_begin, strict=True) if i >= 0]
    return [_path(rows, copy, begin, end + 1) for end, copy, begin in sorted(spans)[-count:]]


def _path(rows: Mapping[str, Any], copy: int, begin: int, end: int) -> dict[str, Any]:
    part = map_columns(rows, lambda column: column[begin:end, copy].clone())
    return {
        "observations": part["observation"],
        "actions": part["action"],
        "rewards": part["reward"],
        "next_observations": part["next_observation"],
        "terminated": part["terminated"],
        "truncated": part["truncated"],
        "return": float(part["reward"].double().sum()),
        "length": end - begin,
    }


def _first(value: Any, count: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _first(part, count) for name, part in value.items()}
    return (value if isinstance(value, Tensor) else torch.from_numpy(value))[:count]

"""The loop that every stepping side runs, and the random actions that it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from measurement import Point
from tasks import SteppingTask


def drawn_actions(task: SteppingTask, space: Any, dtype: Any) -> list[np.ndarray]:
    """Return `distinct_actions` vector actions of a Box or Discrete space, each (N, ...) of the type a side takes."""
    generator = np.random.default_rng(task.seed)
    if hasattr(space, "n"):
        drawn = generator.integers(int(space.n), size=(task.distinct_actions, task.num_envs))
    else:
        low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
        drawn = generator.uniform(low, high, size=(task.distinct_actions, task.num_envs, *low.shape))
    return list(np.ascontiguousarray(drawn.astype(dtype)))


def step_through(
    step: Callable[[Any], Any], actions: Sequence[Any], task: SteppingTask, *, resets_take_a_step: bool = False
) -> list[Point]:
    """Step through warm-up and measurement; return the points before, between and after, in transitions.

    With next-step autoreset a copy that ended spends its next call on the reset, which is no transition. Its flags are kept
    and counted after the clock has stopped: Gymnasium and EnvPool return new arrays at every step.
    """
    flags: list[Any] | None = [] if resets_take_a_step else None
    marks = [(0, time.perf_counter())]
    calls = _block(step, actions, task.warmup_steps, flags)
    marks.append((calls, time.perf_counter()))
    while marks[-1][0] == task.warmup_steps or marks[-1][1] - marks[1][1] < task.min_seconds:
        calls += _block(step, actions, task.block_steps, flags)
        marks.append((calls, time.perf_counter()))
    return [
        Point(calls * task.num_envs - resets, 0, at) for (calls, at), resets in zip(marks, _resets(marks, flags), strict=True)
    ]


def _block(step: Callable[[Any], Any], actions: Sequence[Any], count: int, flags: list[Any] | None) -> int:
    if flags is None:
        for t in range(count):
            step(actions[t % len(actions)])
    else:
        for t in range(count):
            flags.append(step(actions[t % len(actions)])[2:4])
    return count


def _resets(marks: list[tuple[int, float]], flags: list[Any] | None) -> list[int]:
    """Return the calls of single copies that were spent on resets up to each mark."""
    if flags is None:
        return [0] * len(marks)
    ended = np.cumsum([0, *(int(np.count_nonzero(terminated | truncated)) for terminated, truncated in flags)])
    return [int(ended[max(0, calls - 1)]) for calls, _ in marks]  # an end at the last call is reset by the next one

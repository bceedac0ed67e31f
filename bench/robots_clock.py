"""The clock of the robots' benchmark: the same for every side. Standard library, and torch where there is a GPU to wait for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class Mark(NamedTuple):
    """The end of an iteration."""

    at: float
    collect_s: float
    learn_s: float


class Clock:
    """Notes when iterations end, after the device has done all it was asked for."""

    def __init__(self, device: str) -> None:
        self._is_gpu = device.startswith("cuda")
        self.marks: list[Mark] = []

    def tick(self, collect_s: float, learn_s: float) -> None:
        """Note the end of an iteration and how its side splits it."""
        if self._is_gpu:
            import torch

            torch.cuda.synchronize()
        self.marks.append(Mark(time.perf_counter(), collect_s, learn_s))


def summary(marks: Sequence[Mark], warm_up: int, steps: int) -> dict[str, Any]:
    """Return the speed over the iterations after the warm-up, `steps` environment steps each.

    mark ──iteration──▶ mark ──iteration──▶ mark: the first one that counts begins where the warm-up ends
    """
    timed = marks[warm_up - 1 :]
    if warm_up < 1 or len(timed) < 2:
        raise ValueError(f"{len(marks)} iterations with a warm-up of {warm_up}: there must be one before and one after")
    seconds = [after.at - before.at for before, after in pairwise(timed)]
    return {
        "steps_per_s": steps / statistics.median(seconds),
        "best_steps_per_s": steps / min(seconds),
        "mean_steps_per_s": steps * len(seconds) / (timed[-1].at - timed[0].at),
        "iteration_s": statistics.median(seconds),
        "collect_s": statistics.median(mark.collect_s for mark in timed[1:]),
        "learn_s": statistics.median(mark.learn_s for mark in timed[1:]),
        "iterations": len(seconds),
    }

"""Metrics over steps or time, and several runs of unequal lengths and steps on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etude.runs.statistics import Array, Measure, bootstrap_band, mean
from etude.telemetry.names import Row

AXES = {
    "env_steps": "environment steps",
    "decisions": "decisions",
    "updates": "updates",
    "episodes": "episodes",
    "time": "seconds",
}
POINTS = 300
_RESAMPLES = 1000


class Curve(NamedTuple):
    """One metric of one run. Positions only grow; where a row was not finite, the value isn't either."""

    x: Array
    y: Array

    @property
    def finite(self) -> Curve:
        """The curve without the values that are not finite."""
        kept = np.isfinite(self.y)
        return Curve(self.x[kept], self.y[kept])

    def until(self, x: float) -> Curve:
        """Return the part up to a position."""
        end = np.searchsorted(self.x, x, side="right")
        return Curve(self.x[:end], self.y[:end])


class Band(NamedTuple):
    """Several runs as one curve: at every position the runs that have come that far and have not yet ended."""

    x: Array
    value: Array
    low: Array
    """The interval's lower end; NaN where there are fewer than two runs."""
    high: Array
    runs: NDArray[np.int64]


def curve(rows: Sequence[Row], metric: str, axis: str) -> Curve:
    """Return a metric over an axis; of several rows at one position the last one counts."""
    position = "time/elapsed_s" if axis == "time" else axis
    points = [(row[position], row[metric]) for row in rows if metric in row and math.isfinite(row.get(position, math.nan))]
    latest = dict(sorted(points, key=lambda point: point[0]))
    return Curve(np.array(list(latest), dtype=np.float64), np.array(list(latest.values()), dtype=np.float64))


def smoothed(line: Curve, width: float) -> Curve:
    """Return the curve with every value replaced by the mean of those within a centred window, `width` long in positions."""
    if width <= 0 or len(line.x) == 0:
        return line
    first = np.searchsorted(line.x, line.x - width / 2, side="left")
    end = np.searchsorted(line.x, line.x + width / 2, side="right")
    # Near an end the window is cut equally on both sides; cut on one side only, a rising curve would start too high.
    index = np.arange(len(line.x))
    reach = np.minimum(index - first, end - 1 - index)
    sums = np.concatenate([[0.0], np.cumsum(line.y)])
    return Curve(line.x, (sums[index + reach + 1] - sums[index - reach]) / (2 * reach + 1))


def combine(strata: Sequence[Sequence[Curve]], measure: Measure = mean, *, points: int = POINTS) -> Band:
    """Put curves on one axis and average them, with a bootstrap interval over the runs.

    Between its points a curve is a straight line; before its first and after its last it is absent, never extended.
    """
    lines = [[line for line in (one.finite for one in part) if len(line.x)] for part in strata]
    lines = [part for part in lines if part]
    if not lines:
        nothing = np.empty(0)
        return Band(nothing, nothing, nothing, nothing, np.empty(0, dtype=np.int64))
    x = _grid([line for part in lines for line in part], points)
    parts = [np.stack([np.interp(x, line.x, line.y, left=np.nan, right=np.nan) for line in part]) for part in lines]
    present = np.isfinite(np.concatenate(parts))  # (runs, points)
    value, low, high = (np.full(len(x), np.nan) for _ in range(3))
    patterns, which = np.unique(present, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        here = which.ravel() == number
        there = [part[:, here] for part in parts]
        there = [part[np.isfinite(part).all(axis=1)] for part in there]
        there = apart_or_together([part for part in there if len(part)])
        if not there:
            continue  # a gap: one run has ended and the next has not begun
        value[here] = measure(np.concatenate(there), 0)
        if sum(map(len, there)) > 1:
            low[here], high[here] = bootstrap_band(there, measure, resamples=_RESAMPLES)
    return Band(x, value, low, high, present.sum(axis=0))


def apart_or_together(strata: Sequence[Array]) -> list[Array]:
    """Return the strata, or all as one where a stratum has a single run.

    A single run resampled is always itself: its spread would count as none, and the interval would be too narrow.
    """
    if strata and min(map(len, strata)) < 2:
        return [np.concatenate(strata)]
    return list(strata)


def _grid(lines: Sequence[Curve], points: int) -> Array:
    x = np.unique(np.concatenate([line.x for line in lines]))
    return x if len(x) <= points else np.linspace(x[0], x[-1], points)

"""What several seeds say together: robust averages, bootstrap intervals, and the chance that one method beats another.

The measures are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
Scores come in strata: one list of scores a task, one score a seed. Resampling stays within a stratum, because the seeds
are drawn at random and the tasks are not. The generator's seed is fixed: the same scores give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Measure = Callable[[Array, int], Array]
"""From scores and the axis of seeds to one number for every place on the other axes."""
Strata = Sequence[ArrayLike]

CONFIDENCE = 0.95
RESAMPLES = 10_000
_SEED = 0
_MOST_NUMBERS_AT_ONCE = 4_000_000


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A number with its confidence interval, None where there are too few seeds for one."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Summary:
    """What the scores of one method amount to."""

    count: int
    mean: Estimate
    iqm: Estimate
    median: float
    std: float | None
    """Of the sample (n - 1); None of a single score."""
    low: float
    high: float
    optimality_gap: Estimate | None = None


def mean(scores: Array, axis: int = -1) -> Array:
    """Return the mean over seeds."""
    return np.mean(scores, axis=axis)


def interquartile_mean(scores: Array, axis: int = -1) -> Array:
    """Return the mean of the middle half: a quarter of the scores, rounded down, is cut off at each end."""
    count = scores.shape[axis]
    cut = count // 4
    middle = np.take(np.sort(scores, axis=axis), range(cut, count - cut), axis=axis)
    return np.mean(middle, axis=axis)


def optimality_gap(threshold: float) -> Measure:
    """Return the measure of how far, on average, scores stay below a threshold; above it counts as at it."""
    return lambda scores, axis=-1: np.mean(threshold - np.minimum(scores, threshold), axis=axis)


def estimate(strata: Strata, measure: Measure = mean, *, resamples: int = RESAMPLES) -> Estimate:
    """Return a measure of all scores with its stratified bootstrap percentile interval."""
    columns = [scores[:, None] for scores in _checked(strata)]
    value = float(measure(np.concatenate(columns), 0)[0])
    if max(map(len, columns)) < 2:
        return Estimate(value, None)
    low, high = bootstrap_band(columns, measure, resamples=resamples)
    return Estimate(value, Interval(float(low[0]), float(high[0])))


def summarise(strata: Strata, *, threshold: float | None = None) -> Summary:
    """Return every measure of the scores; the optimality gap only where there is a threshold."""
    checked = _checked(strata)
    scores = np.concatenate(checked)
    return Summary(
        count=len(scores),
        mean=estimate(checked, mean),
        iqm=estimate(checked, interquartile_mean),
        median=float(np.median(scores)),
        std=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        low=float(scores.min()),
        high=float(scores.max()),
        optimality_gap=None if threshold is None else estimate(checked, optimality_gap(threshold)),
    )


def bootstrap_band(strata: Sequence[Array], measure: Measure = mean, *, resamples: int = RESAMPLES) -> tuple[Array, Array]:
    """Return the interval's two ends at every point of curves: each stratum is (seeds, points), resampled by whole curves."""
    curves = np.concatenate(strata)  # (seeds, points)
    sizes = tuple(map(len, strata))
    if measure is mean and resamples * len(curves) <= _MOST_NUMBERS_AT_ONCE:
        # To a mean it only matters how often each run was drawn: one product of matrices instead of a copy of everything.
        drawn = _times_drawn(sizes, resamples) @ curves / len(curves)
    else:
        drawn = _drawn(curves, sizes, measure, resamples)
    low, high = np.percentile(drawn, _percentiles(), axis=0)
    # Sums in another order differ in the last bit; an interval that excludes its own estimate by that would be absurd.
    value = measure(curves, 0)
    return np.minimum(low, value), np.maximum(high, value)


def probability_of_improvement(ours: Strata, theirs: Strata, *, resamples: int = RESAMPLES) -> Estimate:
    """Return how likely a run of ours scores higher than one of theirs on a task, a tie counting a half, over all tasks.

    It is the Mann-Whitney statistic over the number of pairs. Both sides have the same tasks in the same order. There is
    an interval where each side has at least two seeds in every task.
    """
    first, second = _checked(ours), _checked(theirs)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} tasks on one side and {len(second)} on the other")
    times = _times_drawn(tuple(map(len, [*first, *second])), resamples)
    per_run = np.split(times, np.cumsum([len(scores) for scores in [*first, *second]])[:-1], axis=1)
    values, drawn = [], np.zeros(resamples)
    for task, (x, y) in enumerate(zip(first, second, strict=True)):
        higher = (x[:, None] > y) + 0.5 * (x[:, None] == y)  # (ours, theirs)
        values.append(float(np.mean(higher)))
        drawn += np.sum(per_run[task] @ higher * per_run[task + len(first)], axis=1) / higher.size
    value = float(np.mean(values))
    if min(map(len, [*first, *second])) < 2:
        return Estimate(value, None)
    low, high = np.percentile(drawn / len(first), _percentiles())
    return Estimate(value, Interval(min(float(low), value), max(float(high), value)))


def performance_profile(strata: Strata, thresholds: ArrayLike) -> Array:
    """Return the share of runs that score above each threshold, every task with the same weight."""
    levels = np.asarray(thresholds, dtype=np.float64)
    return np.mean([(scores[:, None] > levels).mean(axis=0) for scores in _checked(strata)], axis=0)


def _drawn(curves: Array, sizes: Sequence[int], measure: Measure, resamples: int) -> Array:
    generator = np.random.default_rng(_SEED)
    starts = np.cumsum([0, *sizes[:-1]])
    drawn = np.empty((resamples, curves.shape[1]))
    at_once = max(1, _MOST_NUMBERS_AT_ONCE // max(1, curves.size))
    for first in range(0, resamples, at_once):
        rows = min(at_once, resamples - first)
        parts = [start + generator.integers(0, size, (rows, size)) for start, size in zip(starts, sizes, strict=True)]
        drawn[first : first + rows] = measure(curves[np.concatenate(parts, axis=1)], 1)
    return drawn


@lru_cache(maxsize=16)
def _times_drawn(sizes: tuple[int, ...], resamples: int) -> Array:
    """How often each resample has each run, (resamples, runs); the same for all scores, so it is drawn once."""
    generator = np.random.default_rng(_SEED)
    times = [generator.multinomial(size, np.full(size, 1 / size), size=resamples) for size in sizes]
    return np.concatenate(times, axis=1).astype(np.float64)


def _percentiles() -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    return tail, 100 - tail


def _checked(strata: Strata) -> list[Array]:
    # Sorted, so that the order in which seeds were named changes nothing, not even the last bit.
    arrays = [np.sort(np.asarray(scores, dtype=np.float64).ravel()) for scores in strata]
    if not arrays or not all(map(len, arrays)):
        raise ValueError("there are no scores")
    if not all(np.isfinite(scores).all() for scores in arrays):
        raise ValueError("scores that are NaN or infinite can't be averaged; count them and leave them out")
    return arrays

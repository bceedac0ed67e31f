"""A curve in one line of text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
FLAT = "─"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as at most `width` blocks; a constant is a flat line and NaN or infinity is blank."""
    points = resample(values, width)
    finite = [point for point in points if math.isfinite(point)]
    if not finite:
        return " " * len(points)
    low, high = min(finite), max(finite)
    # Halved, because the span of two ordinary floats can overflow.
    span = high / 2 - low / 2
    # Numbers that differ only in their last bits are no curve.
    if span <= 1e-12 * max(abs(low), abs(high)):
        return "".join(FLAT if math.isfinite(point) else " " for point in points)
    return "".join(_block((point / 2 - low / 2) / span) for point in points)


def resample(values: Sequence[float], width: int) -> list[float]:
    """Average neighbours, as evenly as possible, until at most `width` values are left."""
    count = len(values)
    if count <= width:
        return list(values)
    edges = [index * count // width for index in range(width + 1)]
    return [mean_of_finite(values[start:end]) for start, end in itertools.pairwise(edges)]


def mean_of_finite(values: Sequence[float]) -> float:
    """Return the mean of the values that are numbers, or NaN where there is none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan
    # Rounding or an overflowing sum must not push the mean out of its values; equal numbers keep their mean exactly.
    return max(min(finite), min(max(finite), sum(finite) / len(finite)))


def _block(height: float) -> str:
    if not math.isfinite(height):
        return " "
    return BLOCKS[min(int(height * len(BLOCKS)), len(BLOCKS) - 1)]

"""A curve of any length in as many points as a screen has, without losing a peak."""

from __future__ import annotations

import numpy as np

from etude.comparison.curves import Curve


def within(line: Curve, start: float | None, end: float | None) -> Curve:
    """Return the part of a curve between two positions, with one point beyond each, so that lines leave the picture."""
    first = 0 if start is None else max(0, int(np.searchsorted(line.x, start, side="left")) - 1)
    last = len(line.x) if end is None else int(np.searchsorted(line.x, end, side="right")) + 1
    return Curve(line.x[first:last], line.y[first:last])


def extremes(line: Curve, points: int) -> Curve:
    """Return at most about `points` points of a curve: the lowest and the highest of each piece, its first and its last."""
    pieces = max(1, points // 2)
    length = len(line.x) // pieces
    if length < 3:
        return line
    whole = len(line.x) - len(line.x) % length
    values = line.y[:whole].reshape(-1, length)
    begins = np.arange(0, whole, length)
    chosen = [begins + values.argmin(axis=1), begins + values.argmax(axis=1), np.array([0, len(line.x) - 1])]
    if whole < len(line.x):
        rest = line.y[whole:]
        chosen.append(whole + np.array([rest.argmin(), rest.argmax()]))
    index = np.unique(np.concatenate(chosen))
    return Curve(line.x[index], line.y[index])


def means(line: Curve, points: int) -> Curve:
    """Return at most about `points` points of a curve: the mean of each piece. What is to be smoothed is made short so."""
    length = -(-len(line.x) // max(1, points))
    if length < 2:
        return line
    begins = np.arange(0, len(line.x), length)
    counts = np.diff(np.append(begins, len(line.x)))
    return Curve(np.add.reduceat(line.x, begins) / counts, np.add.reduceat(line.y, begins) / counts)

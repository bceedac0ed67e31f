"""Histograms of many numbers: how they are counted, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

BINS = 30


class Histogram(NamedTuple):
    """How often the finite numbers of a tensor lie in each of equally wide bins, and how many are not finite."""

    counts: tuple[int, ...]
    edges: tuple[float, ...]
    """One more than there are counts."""
    mean: float
    std: float
    not_finite: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as a line of a file has it."""
        low, high = self.edges[0], self.edges[-1]
        return {
            "min": low,
            "max": high,
            "mean": self.mean,
            "std": self.std,
            "counts": list(self.counts),
            "not_finite": self.not_finite,
        }


Histograms = Mapping[str, Histogram]


def histogram(values: np.ndarray) -> Histogram:
    """Count the numbers of an array."""
    flat = values.ravel().astype(np.float64)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return Histogram((0,), (0.0, 0.0), 0.0, 0.0, int(flat.size))
    low, high = float(finite.min()), float(finite.max())
    mean, std = float(finite.mean()), float(finite.std())
    if low == high:  # a new layer's biases: all in one bin, whose width NumPy would invent
        return Histogram((int(finite.size),), (low, high), mean, std, int(flat.size - finite.size))
    counts, edges = np.histogram(finite, bins=BINS, range=(low, high))
    return Histogram(tuple(counts.tolist()), tuple(edges.tolist()), mean, std, int(flat.size - finite.size))

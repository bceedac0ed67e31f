"""What the console remembers of a run: every metric's curve in bounded memory."""

from __future__ import annotations

import math

from etude.telemetry.names import COUNTERS, Row
from etude.telemetry.sparkline import mean_of_finite

CAPACITY = 512


class MetricHistory:
    """One metric's curve over the whole run, with its last, previous and highest value.

    When full, neighbours are averaged and half the points remain, so a long run is seen from its beginning, coarser.
    """

    def __init__(self) -> None:
        self.last = math.nan
        self.previous: float | None = None
        self.best = -math.inf
        self._points: list[float] = []
        self._values_per_point = 1
        self._unfinished: list[float] = []

    def add(self, value: float) -> None:
        """Append the metric's next value."""
        self.previous = self.last if self._points or self._unfinished else None
        self.last = value
        if math.isfinite(value):
            self.best = max(self.best, value)
        if self._values_per_point == 1:
            self._points.append(value)
        else:
            self._unfinished.append(value)
            if len(self._unfinished) < self._values_per_point:
                return
            self._points.append(mean_of_finite(self._unfinished))
            self._unfinished.clear()
        if len(self._points) == CAPACITY:
            self._points = [mean_of_finite(self._points[i : i + 2]) for i in range(0, CAPACITY, 2)]
            self._values_per_point *= 2

    @property
    def values(self) -> list[float]:
        """The curve, oldest first; its last point may average fewer values than the others."""
        return [*self._points, mean_of_finite(self._unfinished)] if self._unfinished else list(self._points)


class History:
    """All metrics of a run, and the latest value of everything, which stays while rows come without it."""

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self.metrics: dict[str, MetricHistory] = {}

    def record(self, row: Row) -> None:
        """Add one row's values to their curves."""
        self.latest.update(row)
        for name, value in row.items():
            if name not in COUNTERS:
                self.metrics.setdefault(name, MetricHistory()).add(value)

"""Says once when a metric leaves the range in which training is healthy: a line, never the end of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from etude.telemetry.names import Row

SMOOTHED_OVER = 5
"""Rows that are averaged: one bad row is noise."""


@dataclass
class Rule:
    """The range of a metric, and what to say when its average leaves it."""

    metric: str
    below: float | None = None
    """The least it should be; None for no limit."""
    above: float | None = None
    """The most it should be."""
    too_low: str = ""
    """What it means to be below, and what helps."""
    too_high: str = ""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=SMOOTHED_OVER))
    said: set[str] = field(default_factory=set)

    def judge(self, value: float) -> str | None:
        """Take a value in; return what to say, the first time that there is something."""
        self.recent.append(value)
        if len(self.recent) < SMOOTHED_OVER:
            return None
        mean = sum(self.recent) / SMOOTHED_OVER
        if self.above is not None and mean > self.above:
            return self._say(f"above {self.above:g}", mean, self.too_high)
        if self.below is not None and mean < self.below:
            return self._say(f"below {self.below:g}", mean, self.too_low)
        return None

    def _say(self, side: str, mean: float, meaning: str) -> str | None:
        if side in self.said:
            return None
        self.said.add(side)
        return f"alert: {self.metric} is {mean:.3g} on average over {SMOOTHED_OVER} rows, {side}: {meaning}"


class MetricAlerts:
    """A sink that watches rows and says each alert once in a run; a resumed one brings its past rows."""

    name = "alerts"

    def __init__(self, rules: Iterable[Rule], say: Callable[[str], None], past: Sequence[Row] = ()) -> None:
        self._rules = list(rules)
        self._say = _nothing
        self.write(past)  # what was said before the resume is not said again
        self._say = say

    def write(self, rows: Sequence[Row]) -> None:
        """Judge new rows."""
        for row in rows:
            for rule in self._rules:
                value = row.get(rule.metric)
                said = None if value is None else rule.judge(value)
                if said is not None:
                    self._say(f"{said} (at {int(row.get('env_steps', 0)):,} environment steps)")

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is held here."""


def _nothing(text: str) -> None:
    pass

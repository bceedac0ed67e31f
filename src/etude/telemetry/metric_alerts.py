"""Says once when a metric leaves its healthy range in a run that does not do well: a line, never the end of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from etude.telemetry.names import Row

SMOOTHED_OVER = 10
"""Rows that are averaged: one bad row is noise, and so are two."""
RETURN, SPREAD = "collect/return_mean", "collect/return_std"


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

    def judge(self, value: float, *, aloud: bool = True) -> str | None:
        """Take a value in; return what to say, the first time that there is something, if anything is to be said now."""
        self.recent.append(value)
        if len(self.recent) < SMOOTHED_OVER or not aloud:
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


class Returns:
    """Whether a run does well by its own measure: its returns stand in the upper half of what it has reached so far.

    What it has reached must be more than the spread of its episodes, or chance alone would put every second run there.
    The same numbers mean different things in a run that learns and in one that doesn't. A critic explains nothing of returns
    that are all the same, as those of a solved task are; a policy that improves fast moves far.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=SMOOTHED_OVER)
        self._low, self._high = math.inf, -math.inf
        self._spread = 0.0

    def take(self, value: float, spread: float) -> None:
        """Take a row's mean return in, and how far its episodes lie apart."""
        self._recent.append(value)
        self._spread = spread
        mean = sum(self._recent) / len(self._recent)
        self._low, self._high = min(self._low, mean), max(self._high, mean)

    @property
    def are_good(self) -> bool:
        """Whether they have risen, and are in the upper half."""
        if not self._recent or not self._high - self._low > self._spread:
            return False
        return sum(self._recent) / len(self._recent) >= (self._low + self._high) / 2


class MetricAlerts:
    """A sink that watches rows and says each alert once in a run; a resumed one brings its past rows.

    Nothing is said before `not_before` environment steps, for at the beginning everything moves, nor while returns are good.
    """

    name = "alerts"

    def __init__(
        self, rules: Iterable[Rule], say: Callable[[str], None], past: Sequence[Row] = (), *, not_before: int = 0
    ) -> None:
        self._rules, self._returns, self._not_before = list(rules), Returns(), not_before
        self._say = _nothing
        self.write(past)  # what was said before the resume is not said again
        self._say = say

    def write(self, rows: Sequence[Row]) -> None:
        """Judge new rows."""
        for row in rows:
            if RETURN in row:
                self._returns.take(row[RETURN], row.get(SPREAD, 0.0))
            is_worth_saying = row.get("env_steps", 0) >= self._not_before and not self._returns.are_good
            for rule in self._rules:
                value = row.get(rule.metric)
                said = None if value is None else rule.judge(value, aloud=is_worth_saying)
                if said is not None:
                    self._say(f"{said} (at {int(row.get('env_steps', 0)):,} environment steps)")

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is held here."""


def _nothing(text: str) -> None:
    pass

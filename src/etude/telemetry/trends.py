"""What is seen only over many rows: returns that stall or fall, a policy that no longer explores, a machine that grows slow."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from etude.telemetry.metric_rules import Rules, TrendRule
from etude.telemetry.names import Row
from etude.telemetry.watches import EVALUATED, RETURN, Breach, Returns, Watch, return_of

ENTROPY, ACTION_STD, ALPHA = "train/entropy", "train/action_std", "train/alpha"
STEPS_PER_SECOND, UPDATES_PER_SECOND = "time/steps_per_second", "time/updates_per_second"


class EntropyCollapse:
    """A policy whose randomness has shrunk to a small share of what it began with, in a run that does not do well.

    Of continuous actions the standard deviation is looked at: their entropy may be below zero. Where a temperature holds the
    entropy at a target, as in SAC, there is nothing to say.
    """

    def __init__(self, rule: TrendRule, returns: Returns, threshold: float | None) -> None:
        self._rule, self._returns = rule, returns
        self._early: list[float] = []
        self._recent: deque[float] = deque(maxlen=rule.rows)

    def judge(self, row: Row) -> list[Breach] | None:
        """Compare the last rows with the first."""
        metric = ACTION_STD if ACTION_STD in row else ENTROPY
        value = row.get(metric)
        if value is None or not math.isfinite(value) or ALPHA in row:
            return None
        if len(self._early) < self._rule.rows:
            self._early.append(value)
            return None
        self._recent.append(value)
        first, now = _mean(self._early), _mean(self._recent)
        if len(self._recent) < self._rule.rows or first <= 0 or now >= self._rule.share * first or self._returns.are_good:
            return []
        told = f"{metric} is {now:.3g}, {now / first:.0%} of the {first:.3g} at the beginning, and returns are not good"
        return [Breach("entropy_collapse", metric, told, self._rule.tip)]


class StalledReturn:
    """Returns that have not risen for long in a run that has not learnt anything to rest on."""

    def __init__(self, rule: TrendRule, returns: Returns, threshold: float | None) -> None:
        self._rule, self._returns = rule, returns
        self._window: deque[float] = deque(maxlen=rule.rows)

    def judge(self, row: Row) -> list[Breach] | None:
        """Compare the last third of the window with its first."""
        value = return_of(row)
        if value is None or not row.get("updates", 0):
            return None
        self._window.append(value)
        if len(self._window) < self._rule.rows or self._returns.are_good:
            return []
        third, values = max(1, self._rule.rows // 3), list(self._window)
        gain = _mean(values[-third:]) - _mean(values[:third])
        if gain > self._rule.share * self._returns.spread:
            return []
        told = f"{RETURN} is {_mean(values[-third:]):.4g} and has not risen for {self._rule.rows} rows"
        return [Breach("stalled_return", RETURN, told, self._rule.tip)]


class FallingReturn:
    """Returns that have lost much of what they had gained."""

    def __init__(self, rule: TrendRule, returns: Returns, threshold: float | None) -> None:
        self._rule, self._returns = rule, returns
        self._rows = 0

    def judge(self, row: Row) -> list[Breach] | None:
        """Compare the last rows with the best ones."""
        returns = self._returns
        if return_of(row) is None:
            return None
        self._rows += 1
        gained, lost = returns.high - returns.low, returns.high - returns.mean
        noise = max(returns.spread, returns.spread_at_high)
        if self._rows < self._rule.rows or gained <= noise or lost <= max(self._rule.share * gained, noise):
            return []
        told = f"{RETURN} fell from {returns.high:.4g} to {returns.mean:.4g}, averaged over {returns.SMOOTHED_OVER} rows"
        return [Breach("falling_return", RETURN, told, self._rule.tip)]


class SlowProgress:
    """Returns that will not come near the task's threshold within the budget, seen from half of it on."""

    FROM = 0.5

    def __init__(self, rule: TrendRule, returns: Returns, threshold: float | None) -> None:
        self._rule, self._returns, self._threshold = rule, returns, threshold
        self._first: float | None = None
        self._evaluated = -math.inf
        self._window: deque[tuple[float, float]] = deque(maxlen=rule.rows)

    def judge(self, row: Row) -> list[Breach] | None:
        """Go on to the end as the last rows did: is half of the way in reach?"""
        progress, threshold = row.get("time/progress"), self._threshold
        # What explores falls short of what it has learnt: an evaluation that is good is good.
        self._evaluated = max(self._evaluated, row.get(EVALUATED, -math.inf))
        if threshold is None or progress is None or return_of(row) is None:
            return None
        mean = self._returns.mean
        self._first = mean if self._first is None else self._first
        self._window.append((progress, mean))
        way = threshold - self._first
        if progress < self.FROM or len(self._window) < self._rule.rows or way <= 0:
            return []
        then, before = self._window[0]
        slope = (mean - before) / (progress - then) if progress > then else 0.0
        at_the_end = mean + slope * (1.0 - progress)
        has_come_far = max(mean, self._evaluated) - self._first >= self._rule.share * way
        if has_come_far or at_the_end - self._first >= way / 2:
            return []
        told = f"{RETURN} is {mean:.4g} after {progress:.0%} of the run; the threshold is {threshold:g}"
        return [Breach("slow_progress", RETURN, told, self._rule.tip)]


class ThroughputDrop:
    """A run that has become several times slower than it was, once it learns."""

    SETTLING, SUSTAINED, REMEMBERED = 25, 3, 200

    def __init__(self, rule: TrendRule, returns: Returns, threshold: float | None) -> None:
        self._rule = rule
        self._usual: dict[str, deque[float]] = {}
        self._since_learning = 0
        self._slow_rows = 0

    def judge(self, row: Row) -> list[Breach] | None:
        """Compare the present speed with the usual one."""
        if not row.get("updates", 0):
            return None  # steps without updates are faster than all that follow
        metric = UPDATES_PER_SECOND if not row.get(STEPS_PER_SECOND) else STEPS_PER_SECOND
        value = row.get(metric)
        self._since_learning += 1
        # The speed is that of the last 20 rows: the first ones still count what came before learning, and compiling.
        if value is None or not math.isfinite(value) or value <= 0 or self._since_learning <= self.SETTLING:
            return None
        usual = self._usual.setdefault(metric, deque(maxlen=self.REMEMBERED))
        is_slow = len(usual) >= self._rule.rows and value < self._rule.share * median(usual)
        self._slow_rows = self._slow_rows + 1 if is_slow else 0
        if not is_slow:
            usual.append(value)
        if self._slow_rows < self.SUSTAINED:
            return []
        told = f"{metric} is {value:.4g}, {value / median(usual):.0%} of the usual {median(usual):.4g}"
        return [Breach("throughput_drop", metric, told, self._rule.tip)]


TRENDS: Mapping[str, Callable[[TrendRule, Returns, float | None], Watch]] = {
    "entropy_collapse": EntropyCollapse,
    "stalled_return": StalledReturn,
    "falling_return": FallingReturn,
    "slow_progress": SlowProgress,
    "throughput_drop": ThroughputDrop,
}
"""By the name of their alert."""


def trend_watches(rules: Rules, returns: Returns, threshold: float | None) -> Sequence[Watch]:
    """Return what the rules ask to be looked for; `threshold` is the return at which the task counts as solved."""
    return [make(rules.alerts[name], returns, threshold) for name, make in TRENDS.items() if rules.alerts[name].enabled]


def _mean(values: Sequence[float] | deque[float]) -> float:
    return sum(values) / len(values)

"""What each row is looked at for by itself: values that are NaN, or outside of the range that a rule gives their metric."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple, Protocol

from etude.telemetry.metric_rules import MetricRule, Rules
from etude.telemetry.names import Row, split

RETURN, SPREAD = "collect/return_mean", "collect/return_std"
EVALUATED, EVALUATED_SPREAD = "eval/return_mean", "eval/return_std"
FEWEST_EPISODES = 10
"""Of fewer a mean return says nothing: the spread of a single one is 0, and a lucky one would be the best for ever."""
_MACHINE = ("time", "system")
_MOST_NAMED = 8


class Breach(NamedTuple):
    """Something that is wrong in a row."""

    id: str
    metric: str
    message: str
    tip: str


class Watch(Protocol):
    """Looks at one row after the other; what it says follows from the rows alone, so a resume comes to the same."""

    def judge(self, row: Row) -> list[Breach] | None:
        """Return what is wrong now; None where this row says nothing about it."""
        ...


def return_of(row: Row) -> float | None:
    """Return a row's mean return; None where there is none, or hardly an episode has ended."""
    value = row.get(RETURN)
    is_known = value is not None and math.isfinite(value) and row.get("episodes", FEWEST_EPISODES) >= FEWEST_EPISODES
    return value if is_known else None


class Returns:
    """Whether a run does well by its own measure: its returns stand in the upper half of what it has reached so far.

    What it has reached must be more than the spread of its episodes, or chance alone would put every second run there.
    Evaluations are asked too: the returns of training lag behind what improves fast, and what explores stays below what it has
    learnt. The same numbers mean different things in a run that learns and in one that doesn't. A critic explains nothing of
    returns that are all the same, as those of a solved task are; a policy that improves fast moves far.
    """

    SMOOTHED_OVER = 10

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=self.SMOOTHED_OVER)
        self.low, self.high = math.inf, -math.inf
        self.spread = 0.0
        """How far episodes lie apart now, and did when returns were highest."""
        self.spread_at_high = 0.0
        self._evaluation = _Evaluations()

    def take(self, row: Row) -> bool:
        """Take a row in; False where it has no return."""
        self._evaluation.take(row)
        value = return_of(row)
        if value is None:
            return False
        spread = row.get(SPREAD, 0.0)
        self._recent.append(value)
        self.spread = spread if math.isfinite(spread) else 0.0
        mean = self.mean
        self.low = min(self.low, mean)
        if mean > self.high:
            self.high, self.spread_at_high = mean, self.spread
        return True

    @property
    def mean(self) -> float:
        """The mean return of the last rows."""
        return sum(self._recent) / len(self._recent) if self._recent else math.nan

    @property
    def are_good(self) -> bool:
        """Whether they have risen, and are in the upper half."""
        if self._evaluation.are_good:
            return True
        if not self._recent or not self.high - self.low > self.spread:
            return False
        return self.mean >= (self.low + self.high) / 2


class _Evaluations:
    """The same of evaluations, of which the last one counts."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf
        self._last, self._spread = math.nan, 0.0

    def take(self, row: Row) -> None:
        value = row.get(EVALUATED, math.nan)
        if math.isfinite(value):
            spread = row.get(EVALUATED_SPREAD, 0.0)
            self._last, self._spread = value, spread if math.isfinite(spread) else 0.0
            self._low, self._high = min(self._low, value), max(self._high, value)

    @property
    def are_good(self) -> bool:
        return self._high - self._low > self._spread and self._last >= (self._low + self._high) / 2


class BoundsWatch:
    """One metric against the least and the most that its rule allows, 0 included, and against its value before."""

    def __init__(self, metric: str, rule: MetricRule, name: str, returns: Returns) -> None:
        self._metric, self._rule, self._name, self._returns = metric, rule, name, returns
        self._recent: deque[float] = deque(maxlen=rule.smooth)
        self._last: float | None = None

    def judge(self, row: Row) -> list[Breach] | None:
        """Compare the metric's value, averaged, where this row has one."""
        value, rule = row.get(self._metric), self._rule
        if value is None or not math.isfinite(value):
            return None
        if rule.quiet_while_exact and _is_exact(row, rule.quiet_while_exact):
            return []
        before, self._last = self._last, value
        self._recent.append(value)
        if row.get("time/progress", 1.0) < rule.after or (rule.quiet_while_good and self._returns.are_good):
            return []
        found = self._moved(before, value)
        if len(self._recent) == rule.smooth:
            mean = sum(self._recent) / rule.smooth
            over = f" on average over {rule.smooth} rows" if rule.smooth > 1 else ""
            if rule.max is not None and mean > rule.max:
                found.append(self._breach("high", f"is {mean:.4g}{over}, above {rule.max:g}", rule.tip_high))
            if rule.min is not None and mean < rule.min:
                found.append(self._breach("low", f"is {mean:.4g}{over}, below {rule.min:g}", rule.tip_low))
        return found

    def _moved(self, before: float | None, value: float) -> list[Breach]:
        rule = self._rule
        if before is not None and rule.delta == ">=" and value < before:
            return [self._breach("fell", f"fell from {before:.6g} to {value:.6g}, and must not", rule.tip_low)]
        if before is not None and rule.delta == "<=" and value > before:
            return [self._breach("rose", f"rose from {before:.6g} to {value:.6g}, and must not", rule.tip_high)]
        return []

    def _breach(self, side: str, what: str, tip: str) -> Breach:
        return Breach(f"{self._name}_{side}", self._metric, f"{self._metric} {what}", tip or self._rule.tip)


class NanWatch:
    """Values of a row that are NaN or infinite, but for those of the machine."""

    def __init__(self, rules: Rules, tip: str) -> None:
        self._rules, self._tip = rules, tip

    def judge(self, row: Row) -> list[Breach] | None:
        """Name the losses together, and other metrics by themselves."""
        if not any(math.isnan(value) or math.isinf(value) for value in row.values()):
            return []
        bad = {name: value for name, value in row.items() if not math.isfinite(value) and self._counts(name)}
        losses = [name for name in bad if name.endswith("loss")]
        found = []
        if losses:
            named, verb = " and ".join(losses[:3]), "are" if len(losses) > 1 else "is"
            found.append(Breach("nan_loss", losses[0], f"{named} {verb} {_kind(bad[losses[0]])}", self._tip))
        others = [name for name in bad if name not in losses][:_MOST_NAMED]
        return found + [Breach(f"nan_{name}", name, f"{name} is {_kind(bad[name])}", self._tip) for name in others]

    def _counts(self, name: str) -> bool:
        return split(name)[0] not in _MACHINE and self._rules.of(name).nan == "alert"


def bounds_watch(metric: str, rules: Rules, returns: Returns) -> BoundsWatch | None:
    """Return what holds a metric to its rule; None where its rule allows everything."""
    rule = rules.of(metric)
    if rule.min is None and rule.max is None and rule.delta is None:
        return None
    # A pattern's name would be that of several metrics.
    name = rule.name if rule.name is not None and metric in rules.metrics else metric
    return BoundsWatch(metric, rule, name, returns)


def _is_exact(row: Row, share: float) -> bool:
    """Whether a critic's error is less than a share of its values."""
    loss, mean = row.get("train/value_loss", math.nan), row.get("train/value_mean", math.nan)
    return loss < (share * mean) ** 2  # false where one of them is NaN


def _kind(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"

"""Watches the rows of a run and keeps its alerts: each is raised once, and cleared once it no longer holds.

What holds follows from the rows, so a resumed run, which brings its past ones, knows what it knew before and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from etude.files.printable import one_line
from etude.telemetry.alert_log import LONGEST_TEXT, Transition, active_in, now
from etude.telemetry.metric_rules import Rules, default_rules
from etude.telemetry.names import COUNTERS, Row
from etude.telemetry.trends import trend_watches
from etude.telemetry.watches import Breach, NanWatch, Returns, Watch, bounds_watch

CLEARED_AFTER = 3
"""Healthy rows in succession that clear an alert: a value about its limit would be news at every row."""
_LONGEST_ID = 120

Listener = Callable[[Transition], None]


@dataclass(frozen=True)
class Alert:
    """Something that is wrong with a run, and since when."""

    id: str
    metric: str
    message: str
    tip: str
    counters: Mapping[str, int]
    """The counters at which it was raised."""
    time: str
    """When it was raised, in ISO 8601; empty where nobody knows any more."""


class Recap(NamedTuple):
    """How long an alert was active in the whole run."""

    alert: Alert
    """As it was raised last."""
    rows: int
    """At how many rows it held."""
    of: int
    """How many rows there were."""
    is_active: bool


class Monitor:
    """A sink that looks at every row, and tells its listeners of alerts that begin or end.

    A listener that fails is told about through `on_failure`, once, and heard no more; the run goes on.
    """

    name = "alerts"

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        threshold: float | None = None,
        listeners: Sequence[Listener] = (),
        on_failure: Callable[[str], None] = lambda text: None,
        strict: bool = False,
    ) -> None:
        self.rules = default_rules() if rules is None else rules
        self.reason_to_stop: str | None = None
        """The first alert of this sitting, where `strict` says that one ends the run."""
        self._threshold, self._on_failure, self._strict = threshold, on_failure, strict
        self._listeners = list(listeners)
        self._begin()

    def _begin(self) -> None:
        rules, self._returns = self.rules, Returns()
        self.active: dict[str, Alert] = {}
        self.added: list[str] = []
        """The alerts that the last row raised."""
        self.removed: list[str] = []
        """Those that it cleared."""
        nan = rules.alerts["nan"]
        self._trends: list[Watch] = [*([NanWatch(rules, nan.tip)] if nan.enabled else [])]
        self._trends += trend_watches(rules, self._returns, self._threshold)
        self._bounds: dict[str, Watch | None] = {}
        self._held: dict[int, dict[str, int]] = {}  # by watch: its active alerts, and for how many rows each has been healthy
        self._rows = 0
        self._rows_of: dict[str, int] = {}
        self._last: dict[str, Alert] = {}
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._is_replaying = False

    def go_on(self, past: Sequence[Row], known: Sequence[Transition]) -> None:
        """Begin where earlier rows and the run's file of alerts leave off; what they disagree about is told now."""
        self._begin()
        self._is_replaying = True
        self.write(past)
        self._is_replaying = False
        self.added, self.removed = [], []
        told = active_in(list(known))
        for name, alert in list(self.active.items()):
            if name in told:
                line = told[name]
                counters = {**alert.counters, **{key: line[key] for key in ("env_steps", "updates", "decisions")}}
                self.active[name] = self._last[name] = _from(line, counters, line["time"])
            else:
                self._tell(alert, "raised")
        for name, line in told.items():
            if name in self.active:
                continue
            if self._is_seen_in_rows(name):
                self._tell(_from(line, dict(self._counters), ""), "cleared")
            else:  # somebody's own: nothing but the file knows of it
                counters = {key: line[key] for key in ("env_steps", "updates", "decisions")}
                self.active[name] = self._last[name] = _from(line, counters, line["time"])

    def write(self, rows: Sequence[Row]) -> None:
        """Look at new rows."""
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        self.added, self.removed = [], []
        self._counters = {name: int(row.get(name, 0)) for name in COUNTERS}
        self._rows += 1
        self._returns.take(row)
        for name in row:
            if name not in self._bounds:
                self._bounds[name] = bounds_watch(name, self.rules, self._returns)
        for watch in (*self._trends, *(watch for name in row if (watch := self._bounds[name]) is not None)):
            found = watch.judge(row)
            if found is not None:
                self._settle(self._held.setdefault(id(watch), {}), found)
        for name in self.active:
            self._rows_of[name] = self._rows_of.get(name, 0) + 1

    def _settle(self, held: dict[str, int], found: list[Breach]) -> None:
        for breach in found:
            held[breach.id] = 0
            if breach.id not in self.active:
                self.send_alert(breach.id, breach.message, tip=breach.tip, metric=breach.metric)
        breaches = {breach.id for breach in found}
        for name in [name for name in held if name not in breaches]:
            held[name] += 1
            if held[name] >= CLEARED_AFTER:
                del held[name]
                self.clear_alert(name)

    def send_alert(
        self, id: str, message: str, *, tip: str = "", metric: str = "", counters: Mapping[str, int] | None = None
    ) -> None:
        """Raise an alert; one that is active already is not raised again. The counters are the last row's, if not given."""
        name = one_line(id, _LONGEST_ID)
        if not name or name in self.active:
            return
        metric, message, tip = (one_line(text, LONGEST_TEXT) for text in (metric, message or name, tip))
        at = {**self._counters, **({} if counters is None else counters)}
        alert = self.active[name] = self._last[name] = Alert(
            name, metric, message, tip, at, "" if self._is_replaying else now()
        )
        self.added.append(name)
        self._rows_of.setdefault(name, 0)
        self._tell(alert, "raised")
        if self._strict and not self._is_replaying and self.reason_to_stop is None:
            self.reason_to_stop = f"alert {name}: {alert.message}"

    def clear_alert(self, id: str) -> None:
        """Take an alert back, if it is active."""
        alert = self.active.pop(one_line(id, _LONGEST_ID), None)
        if alert is not None:
            self.removed.append(alert.id)
            self._tell(Alert(alert.id, alert.metric, alert.message, alert.tip, dict(self._counters), now()), "cleared")

    def recap(self) -> list[Recap]:
        """Return every alert of the run, those that held longest first."""
        found = [
            Recap(alert, self._rows_of.get(name, 0), self._rows, name in self.active) for name, alert in self._last.items()
        ]
        return sorted(found, key=lambda recap: (-recap.rows, recap.alert.id))

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is held here."""

    def _is_seen_in_rows(self, name: str) -> bool:
        """Whether an alert of this name would have been found again by looking at the rows."""
        named = {rule.name or metric for metric, rule in self.rules.metrics.items()} | set(self._bounds)
        sides = {f"{each}_{side}" for each in named for side in ("high", "low", "fell", "rose")}
        return name in sides or (name in self.rules.alerts and name != "non_finite") or name.startswith("nan_")

    def _tell(self, alert: Alert, state: str) -> None:
        if self._is_replaying:
            return
        at = alert.counters
        line: Transition = {
            "id": alert.id,
            "metric": alert.metric,
            "message": alert.message,
            "tip": alert.tip,
            "state": "raised" if state == "raised" else "cleared",
            "env_steps": at["env_steps"],
            "updates": at["updates"],
            "decisions": at["decisions"],
            "time": alert.time or now(),
        }
        for listener in list(self._listeners):
            try:
                listener(line)
            except Exception as error:  # noqa: BLE001 - whoever listens, none of them may end a training
                self._listeners.remove(listener)
                self._on_failure(f"alerts: {one_line(str(error)) or type(error).__name__}; no more of them there")


def _from(line: Transition, counters: Mapping[str, int], time: str) -> Alert:
    return Alert(line["id"], line["metric"], line["message"], line["tip"], counters, time)


def told(line: Transition, step_key: str = "env_steps") -> str:
    """Return a transition as a line of the console."""
    counter = step_key if step_key in line else "env_steps"
    at = f"at {line[counter]:,} {_UNITS[counter]}"
    if line["state"] == "cleared":
        return f"alert {line['id']} cleared {at}"
    tip = f"; {line['tip']}" if line["tip"] else ""
    return f"alert {line['id']}: {line['message']}{tip} ({at})"


_UNITS = {"env_steps": "environment steps", "updates": "updates", "decisions": "decisions"}

"""Rules of metrics: how each is shown, which range is healthy, and what to try outside of it. Read from YAML, and checked.

Ours are in `metric_rules.yaml`; a file of the user's has the same form and says only what differs:

    table: {step_key: updates}
    metrics:
      train/loss: {max: 100, precision: 3}
      "reward/*": {min: 0}              # every metric of a namespace; a name itself goes before a pattern
    alerts:
      stalled_return: {enabled: false}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from etude.errors import ConfigError, UserError, did_you_mean
from etude.files.documents import DocumentError, parse_yaml
from etude.files.regular import read_own_bytes
from etude.telemetry.names import COUNTERS

VERSION = 1


@dataclass(frozen=True)
class MetricRule:
    """What is known of one metric, or of all that a pattern names."""

    description: str = ""
    """What it is."""
    name: str | None = None
    """What its alerts are called: NAME_high, NAME_low. Default: the metric's own name."""
    precision: int | None = None
    """Digits after the point. Default: four significant digits."""
    min: float | None = None
    """The least that is healthy; below it there is an alert."""
    max: float | None = None
    """The most that is healthy."""
    delta: Literal[">=", "<="] | None = None
    """How each value has to be to the one before: `>=` must not fall, `<=` must not rise."""
    smooth: int = 1
    """Rows that are averaged before they are compared: one bad row may be noise."""
    after: float = 0.0
    """The share of the run before which nothing is said: at the beginning everything moves."""
    quiet_while_good: bool = False
    """Say nothing while returns are in the upper half of what the run has reached."""
    quiet_while_exact: float = 0.0
    """Say nothing while the critic is off by less than this share of what it says: of returns that hardly differ, as those of a
    task that is solved, there is nothing to explain."""
    nan: Literal["alert", "ignore"] = "alert"
    """What a value that is NaN or infinite is."""
    better: Literal["higher", "lower"] | None = None
    """Which way is good, for the colour of its arrow."""
    highlight: bool = False
    """Show its line on a ground of its own."""
    bold: bool = False
    """Show its value in bold."""
    show_in_table: bool | None = None
    """Whether the table has it. Default: yes, but for counters, time/ and system/."""
    tip: str = ""
    """What to try when it leaves its range."""
    tip_low: str = ""
    """The same, where it is too low."""
    tip_high: str = ""
    """The same, where it is too high."""


@dataclass(frozen=True)
class TrendRule:
    """A built-in alert about how metrics move."""

    enabled: bool = True
    """Whether it is looked for."""
    share: float = 0.0
    """Its limit, as a share of what it compares with."""
    rows: int = 10
    """The rows that it looks at."""
    tip: str = ""
    """What to try."""


@dataclass(frozen=True)
class TableRule:
    """The table as a whole."""

    key_priority: tuple[str, ...] = ()
    """What a short terminal shows first; ours follow a user's."""
    step_key: str = "env_steps"
    """The counter that alerts are told by, and the x-axis of TensorBoard."""


@dataclass(frozen=True)
class Rules:
    """Everything that is known of metrics."""

    table: TableRule = TableRule()
    metrics: Mapping[str, MetricRule] = field(default_factory=dict)
    alerts: Mapping[str, TrendRule] = field(default_factory=dict)
    _found: dict[str, MetricRule] = field(default_factory=dict, repr=False, compare=False)

    def of(self, metric: str) -> MetricRule:
        """Return the rule of a metric: its own, or that of the first pattern that it fits."""
        rule = self._found.get(metric)
        if rule is None:
            rule = self._found[metric] = self._find(metric)
        return rule

    def _find(self, metric: str) -> MetricRule:
        own = self.metrics.get(metric)
        if own is not None:
            return own
        return next((rule for pattern, rule in self.metrics.items() if fnmatchcase(metric, pattern)), _NO_RULE)

    def with_metric(self, metric: str, **changes: Any) -> Rules:
        """Return the same rules, with some values of one metric's others."""
        return replace(self, metrics={**self.metrics, metric: replace(self.of(metric), **changes)}, _found={})


_NO_RULE = MetricRule()


@cache
def default_rules() -> Rules:
    """Return the rules that come with Etude."""
    return _merged(Rules(), parse_yaml(_DEFAULTS.read_bytes()), _DEFAULTS.name, is_ours=True)


def read_rules(path: Path, base: Rules | None = None) -> Rules:
    """Return the rules of a user's file on top of `base`, ours by default; whatever is wrong with it is a ConfigError."""
    try:
        data = read_own_bytes(path)
    except FileNotFoundError:
        raise UserError(f"logging.rules={path}: there is no such file") from None
    except OSError as error:
        raise UserError(f"logging.rules={path}: {error.strerror or error}") from None
    return parse_rules(data, str(path), base)


def parse_rules(text: bytes | str, name: str, base: Rules | None = None) -> Rules:
    """Return the rules that a text adds to `base`; `name` is what errors call it."""
    try:
        found = parse_yaml(text)
    except DocumentError as error:
        raise ConfigError(error.of(name)) from None
    return _merged(default_rules() if base is None else base, found, name)


def _merged(base: Rules, found: Any, name: str, *, is_ours: bool = False) -> Rules:
    problems: list[str] = []
    sections = _mapping({} if found is None else found, "", ("version", "table", "metrics", "alerts"), problems)
    if sections.get("version", VERSION) != VERSION:
        problems.append(f"version={_shown(sections['version'])}: this Etude reads version {VERSION}")
    table = _changed(base.table, sections.get("table"), "table", problems)
    table = replace(table, key_priority=tuple(dict.fromkeys((*table.key_priority, *base.table.key_priority))))
    metrics, alerts = dict(base.metrics), dict(base.alerts)
    own: dict[str, MetricRule] = {}
    for metric, entry in _mapping(sections.get("metrics") or {}, "metrics", None, problems).items():
        own[metric] = _changed(base.of(metric), entry, f"metrics.{metric}", problems)
        metrics.pop(metric, None)
    known = None if is_ours else tuple(base.alerts)
    for alert, entry in _mapping(sections.get("alerts") or {}, "alerts", known, problems).items():
        alerts[alert] = _changed(base.alerts.get(alert, TrendRule()), entry, f"alerts.{alert}", problems)
    if table.step_key not in COUNTERS:
        problems.append(
            f"table.step_key={_shown(table.step_key)}: no counter; there are {', '.join(COUNTERS)}"
            f"{did_you_mean(str(table.step_key), COUNTERS)}"
        )
    problems += [problem for metric, rule in own.items() for problem in _contradictions(metric, rule)]
    if problems:
        raise ConfigError(*(f"{name}: {problem}" for problem in problems))
    # A user's patterns are asked before ours.
    return Rules(table, {**own, **metrics}, alerts)


def _mapping(found: Any, place: str, known: tuple[str, ...] | None, problems: list[str]) -> dict[str, Any]:
    if not isinstance(found, dict):
        problems.append(f"{place or 'the file'}: {_shown(found)} is no mapping of names to values")
        return {}
    taken = {}
    for key, value in found.items():
        if not isinstance(key, str) or (known is not None and key not in known):
            whole = f"{place}.{key}" if place else str(key)
            hint = did_you_mean(str(key), known or ()) or (f"; there are {', '.join(known)}" if known else "")
            problems.append(f"{_shown(whole)}: there is no such key{hint}")
        else:
            taken[key] = value
    return taken


def _changed(base: Any, found: Any, place: str, problems: list[str]) -> Any:
    """Return the dataclass with what a mapping says of its fields."""
    kinds = get_type_hints(type(base))
    values = {}
    for key, value in _mapping(
        {} if found is None else found, place, tuple(each.name for each in fields(base)), problems
    ).items():
        problem, taken = _checked(key, value, kinds[key])
        if problem is None:
            values[key] = taken
        else:
            problems.append(f"{place}.{key}={_shown(value)}: {problem}")
    return replace(base, **values)


def _checked(key: str, value: Any, kind: Any) -> tuple[str | None, Any]:
    """Return what is wrong with a value, if anything, and the value as its field has it."""
    if value is None and NoneType in get_args(kind):
        return None, None
    choices = [each for part in (kind, *get_args(kind)) if get_origin(part) is Literal for each in get_args(part)]
    plain = [part for part in (kind, *get_args(kind)) if isinstance(part, type) and part is not NoneType]
    if choices:
        wanted = " or ".join(choices)
        return (None, value) if value in choices else (f"must be {wanted}{did_you_mean(str(value), choices)}", None)
    if get_origin(kind) is tuple:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return None, tuple(value)
        return "must be a list of metrics", None
    if bool in plain:
        return (None, value) if isinstance(value, bool) else ("must be true or false", None)
    if str in plain:
        return (None, value) if isinstance(value, str) else ("must be text", None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "must be a number", None
    low, high = _RANGES.get(key, (-math.inf, math.inf))
    if not low <= value <= high:
        return f"must be from {low:g} to {high:g}" if math.isfinite(high) else f"must be at least {low:g}", None
    if int in plain and float not in plain:
        return (None, int(value)) if value == int(value) else ("must be a whole number", None)
    return None, float(value)


def _contradictions(metric: str, rule: MetricRule) -> list[str]:
    if rule.min is not None and rule.max is not None and rule.min > rule.max:
        return [f"metrics.{metric}: min={rule.min:g} is above max={rule.max:g}, so every value would be an alert"]
    return []


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_RANGES = {"precision": (0, 12), "smooth": (1, 1000), "after": (0, 1), "rows": (2, 10_000), "share": (0, 1)}
_DEFAULTS = Path(__file__).with_name("metric_rules.yaml")

"""Conditions on runs as text: ``algorithm=ppo``, ``eval/return_mean>400``, ``date>=2026-11-01``, ``age<7d``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from etude.errors import UserError
from etude.runs.indexed_run import IndexedRun
from etude.runs.run_keys import RunKeys, value_of

_FORM = re.compile(r"\s*([^=<>!\s]+)\s*(!=|>=|<=|==|=|>|<)\s*(.*?)\s*", re.DOTALL)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda actual, wanted: actual > wanted,
    ">=": lambda actual, wanted: actual >= wanted,
    "<": lambda actual, wanted: actual < wanted,
    "<=": lambda actual, wanted: actual <= wanted,
}
_HASHES = ("commit", "config_hash", "setup_hash")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DATE_FORMS = (
    ("%Y-%m-%d", timedelta(days=1)),
    ("%Y-%m-%dT%H:%M", timedelta(minutes=1)),
    ("%Y-%m-%d %H:%M", timedelta(minutes=1)),
    ("%Y-%m-%dT%H:%M:%S", timedelta(seconds=1)),
    ("%Y-%m-%d %H:%M:%S", timedelta(seconds=1)),
)


@dataclass(frozen=True)
class Condition:
    """One condition: a key, how it is compared, and with what."""

    text: str
    key: str
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition; the key is not looked up yet."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UserError(f"filter '{text}': write key=value, with =, !=, >, >=, < or <=, such as algorithm=ppo")
        key, operator, value = match.groups()
        return cls(text, key, "=" if operator == "==" else operator, value)

    @classmethod
    def equal(cls, key: str, value: object) -> Condition:
        """Return the condition ``key=value``; None means that there is no value."""
        text = "" if value is None else str(value)
        return cls(f"{key}={text}", key, "=", text)

    def test(self, keys: RunKeys) -> Callable[[IndexedRun], bool]:
        """Return the function that says whether a run meets it; UserError when it makes no sense."""
        key = keys.resolve(self.key)
        matches = self._matcher(key)
        if self.operator != "!=":
            return lambda run: matches(value_of(run, key))
        return lambda run: not matches(value_of(run, key))

    def _matcher(self, key: str) -> Callable[[Any], bool]:
        if self.operator in ("=", "!=") and not self.value:
            return lambda actual: actual is None or actual in ("", [])
        if key in ("created", "cleaned"):
            return self._by_date()
        if key == "age":
            return self._by_age()
        if self.operator in _ORDER:
            return self._by_size()
        return _equal_to(self.value, is_hash=key in _HASHES)

    def _by_size(self) -> Callable[[Any], bool]:
        try:
            wanted = float(self.value)
        except ValueError:
            raise UserError(f"filter '{self.text}': '{self.value}' is not a number") from None
        compare = _ORDER[self.operator]
        return lambda actual: _is_number(actual) and compare(actual, wanted)

    def _by_date(self) -> Callable[[Any], bool]:
        start, end = self._period()

        def matches(actual: Any) -> bool:
            if not isinstance(actual, str):
                return False
            try:
                moment = datetime.fromisoformat(actual).astimezone()
            except (ValueError, OverflowError):  # the year 1 lies before any clock's first second
                return False
            # A day is a stretch of time: after it is after its end, from it on is from its start.
            inside = {">": moment >= end, ">=": moment >= start, "<": moment < start, "<=": moment < end}
            return inside.get(self.operator, start <= moment < end)

        return matches

    def _period(self) -> tuple[datetime, datetime]:
        for form, length in _DATE_FORMS:
            try:
                start = datetime.strptime(self.value, form)
            except ValueError:
                continue
            # The end as a local time, not a fixed distance: days with a clock change have 23 or 25 hours.
            return start.astimezone(), (start + length).astimezone()
        age = "; for runs younger than that, write age<7d" if re.fullmatch(r"[\d.]+[smhdw]", self.value) else ""
        raise UserError(f"filter '{self.text}': '{self.value}' is not a date; write 2026-11-01 or 2026-11-01T15:30{age}")

    def _by_age(self) -> Callable[[Any], bool]:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", self.value)
        if match is None or self.operator not in _ORDER:
            raise UserError(f"filter '{self.text}': write age<7d or age>36h (units: {', '.join(_UNITS)})")
        wanted, compare = float(match[1]) * _UNITS[match[2]], _ORDER[self.operator]
        return lambda actual: actual is not None and compare(actual, wanted)


def _equal_to(value: str, *, is_hash: bool) -> Callable[[Any], bool]:
    # Brackets are no pattern here: [64,64] is a setting.
    pattern = re.compile(re.escape(value).replace(r"\*", ".*").replace(r"\?", ".") + (".*" if is_hash else ""), re.I | re.S)
    try:
        typed = json.loads(value)
    except (ValueError, RecursionError):
        typed = None

    def matches(actual: Any) -> bool:
        if actual is None:
            return False
        if _is_number(actual):
            return actual == _as_number(value) or pattern.fullmatch(str(actual)) is not None
        if isinstance(actual, list):
            return actual == typed or any(matches(item) for item in actual)
        if isinstance(actual, bool | dict):
            return pattern.fullmatch(json.dumps(actual)) is not None or (typed is not None and actual == typed)
        return pattern.fullmatch(str(actual)) is not None

    return matches


def _is_number(value: Any) -> bool:
    # NaN is no number to compare with.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _as_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None

"""What a config value may be, stated in its type: `Annotated[int, at_least(1)]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from etude.config.schedules import Schedule


@dataclass(frozen=True)
class Bounds:
    """An allowed range of numbers."""

    low: float | None = None
    high: float | None = None
    low_open: bool = False

    def violated_by(self, value: object) -> str | None:
        """Say what `value` must be, or None if it is fine."""
        if isinstance(value, Schedule):
            # A schedule may run down to the open end of its range (lin_0.2 ends at 0); it may not start there.
            relaxed = Bounds(self.low, self.high, low_open=False)
            return self.violated_by(value.start) or relaxed.violated_by(value.end)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        too_low = self.low is not None and (value <= self.low if self.low_open else value < self.low)
        too_high = self.high is not None and value > self.high
        return f"must be {self}" if too_low or too_high or value != value else None

    def __str__(self) -> str:
        low = None if self.low is None else f"{'above' if self.low_open else 'at least'} {self.low:g}"
        high = None if self.high is None else f"at most {self.high:g}" if self.high < 1e6 else f"at most {self.high:,.0f}"
        return " and ".join(part for part in (low, high) if part)


@dataclass(frozen=True)
class Interval:
    """A list of a lower and an upper bound, in this order, each within bounds of its own."""

    each: Bounds = Bounds()
    whole: bool = False

    def violated_by(self, value: object) -> str | None:
        """Say what a pair of numbers must be, or None if it is fine."""
        if not isinstance(value, tuple | list) or len(value) != 2 or not all(isinstance(each, int | float) for each in value):
            return None  # which is said elsewhere
        message = next((said for number in value if (said := self.each.violated_by(number))), None)
        if message:
            return f"each {message}"
        if self.whole and any(number != int(number) for number in value):
            return "must be whole numbers"
        return "must be a lower bound and then an upper one" if value[0] > value[1] else None

    def __str__(self) -> str:
        return ", ".join(part for part in (str(self.each), "whole" if self.whole else "", "lower first") if part)


@dataclass(frozen=True)
class Component:
    """A place where the user chooses a registered part by name; the part's own options are checked too."""

    registry: str
    key: str = "type"


@dataclass(frozen=True)
class Size:
    """A number of bytes, which may be written with a unit: 8GB, 500 MB, 16GiB."""

    def parse(self, value: object) -> object:
        """Return a text with a unit as a number; anything else as it is. ValueError says what a size looks like."""
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?i?)b\s*", value.lower())
        if found is None:
            raise ValueError("must be a number of bytes, such as 8GB or 500MB")
        number, unit = found.groups()
        base = 1024 if unit.endswith("i") else 1000
        return int(float(number) * base ** " kmgt".index(unit[:1] or " "))


def at_least(low: float) -> Bounds:
    """Allow `low` and everything above it."""
    return Bounds(low=low)


def above(low: float) -> Bounds:
    """Allow everything above `low`, not `low` itself."""
    return Bounds(low=low, low_open=True)


def between(low: float, high: float) -> Bounds:
    """Allow `low`, `high` and everything between."""
    return Bounds(low=low, high=high)


PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
ByteCount = Annotated[int, Size(), at_least(1)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
UnitInterval = Annotated[float, between(0, 1)]
PositiveSchedule = Annotated[Schedule, above(0)]
NonNegativeSchedule = Annotated[Schedule, at_least(0)]

"""Hyper-parameters that change over a run, as pure functions of how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from etude.errors import did_you_mean

Unit = Literal["env_steps", "decisions", "updates"]
UNITS: tuple[Unit, ...] = get_args(Unit)
_KEYS = ("start", "end", "start_at", "end_at", "unit")
_EXPECTED = "must be a number or a schedule like lin_3e-4"


class Stretch(NamedTuple):
    """The phase that a moment lies in, as a part of the run."""

    before: float
    """What the phases before it make of the run."""
    share: float
    """What this one makes of it."""
    ends: tuple[tuple[str, int, int], ...]
    """What ends it: a unit, how much of it is done, and the total; the one that is furthest counts."""

    @property
    def progress(self) -> float:
        """How much of the phase is over."""
        return min(1.0, max((done / total for _, done, total in self.ends), default=0.0))

    @property
    def fraction(self) -> float:
        """How much of the run is over."""
        return self.before + self.share * self.progress

    def later(self, **more: int) -> Stretch:
        """Return the same phase with so much more done, by unit."""
        return self._replace(ends=tuple((unit, done + more.get(unit, 0), total) for unit, done, total in self.ends))


class Moment(NamedTuple):
    """How far a run is: what schedules are a function of."""

    env_steps: int
    total_steps: int
    """The budget."""
    decisions: int = 0
    updates: int = 0
    stretch: Stretch | None = None
    """Where in the run that is by the shares of its phases; None where the budget alone measures it."""

    def later(self, *, env_steps: int = 0, decisions: int = 0, updates: int = 0) -> Moment:
        """Return the moment after so much more."""
        stretch = self.stretch and self.stretch.later(env_steps=env_steps, updates=updates)
        more = (self.env_steps + env_steps, self.total_steps, self.decisions + decisions, self.updates + updates)
        return Moment(*more, stretch)


@dataclass(frozen=True)
class Schedule:
    """A value that is constant, or moves in a straight line from `start` to `end`.

    ```
    start ────╮
               ╲
                ╰──── end
        start_at  end_at
    ```

    Positions up to 1 are fractions of the run (1.0 is all of it); larger ones are counts of its unit.
    """

    start: float
    end: float
    start_at: float = 0.0
    end_at: float = 1.0
    unit: Unit = "env_steps"

    @classmethod
    def constant(cls, value: float) -> Schedule:
        """Return a schedule that never changes."""
        return cls(value, value)

    @classmethod
    def parse(cls, value: object) -> Schedule:
        """Read a number, `lin_3e-4` (from 3e-4 down to 0), or a mapping with start/end/start_at/end_at/unit."""
        if isinstance(value, Schedule):
            return value
        if isinstance(value, dict):
            return cls._from_parts(value)
        if isinstance(value, str) and value.startswith("lin_"):
            return cls._from_parts({"start": value.removeprefix("lin_")})
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(_EXPECTED)
        try:
            number = as_float(value)
        except ValueError:
            raise ValueError(_EXPECTED) from None
        if not math.isfinite(number):
            raise ValueError("must be finite")
        return cls.constant(number)

    @classmethod
    def _from_parts(cls, parts: dict[str, object]) -> Schedule:
        unknown = [key for key in parts if key not in _KEYS]
        if unknown:
            raise ValueError(f"a schedule has the keys {', '.join(_KEYS)}, not {unknown[0]!r}")
        if "start" not in parts:
            raise ValueError("a schedule needs a start value")
        unit = parts.get("unit", "env_steps")
        if unit not in UNITS:
            raise ValueError(f"a schedule's unit is {', '.join(UNITS)}, not {unit!r}{did_you_mean(str(unit), UNITS)}")
        numbers = {key: _number(key, value) for key, value in parts.items() if key != "unit"}
        start, end = numbers["start"], numbers.get("end", 0.0)
        first, last = numbers.get("start_at", 0.0), numbers.get("end_at", 1.0)
        if first < 0 or last <= 0:
            raise ValueError("a schedule's start_at must be at least 0 and its end_at above 0")
        if (first <= 1) == (last <= 1) and first > last:
            raise ValueError("a schedule's end_at must not be before its start_at")
        if unit != "env_steps" and first > 0 and (first <= 1) != (last <= 1):
            raise ValueError(f"a schedule in {unit} has both positions up to 1 (fractions of the run) or both above (counts)")
        return cls.constant(start) if start == end else cls(start, end, first, last, unit)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same at every step."""
        return self.start == self.end

    def at(self, now: Moment) -> float:
        """Return the value at a moment of a run."""
        if self.is_constant:
            return self.start
        done, first, last = self._along(now)
        if done <= first:
            return self.start
        if done >= last:
            return self.end
        return self.start + (self.end - self.start) * (done - first) / (last - first)

    def moves_by_update(self, now: Moment) -> bool:
        """Whether each update of this phase has a value of its own."""
        if self.is_constant or not self._is_of_the_run:
            return not self.is_constant and self.unit == "updates"
        return now.stretch is not None and any(unit == "updates" for unit, _, _ in now.stretch.ends)

    @property
    def _is_of_the_run(self) -> bool:
        return self.end_at <= 1 and self.start_at <= 1

    def _along(self, now: Moment) -> tuple[float, float, float]:
        """Return how far it is, and where the line begins and ends."""
        if self._is_of_the_run and now.stretch is not None:
            return now.stretch.fraction, self.start_at, self.end_at
        # Of the budget's steps where fractions are: whole numbers stay exact.
        done = now.env_steps if self._is_of_the_run else getattr(now, self.unit)
        first, last = (p * now.total_steps if p <= 1 else p for p in (self.start_at, self.end_at))
        return done, first, last

    def to_plain(self) -> object:
        """Return the form that a YAML file holds."""
        if self.is_constant:
            return self.start
        plain = {key: getattr(self, key) for key in _KEYS}
        return plain if self.unit != "env_steps" else {key: plain[key] for key in _KEYS[:-1]}  # as it always was on disk


def as_float(value: float | str) -> float:
    """Return a number as Python's float; one beyond its range is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _number(key: str, value: object) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            number = as_float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError(_EXPECTED if isinstance(value, str) and key == "start" else f"its {key} is not a number")

"""Hyper-parameters that change over a run, as pure functions of the environment steps done."""

from __future__ import annotations

import math
from dataclasses import dataclass

_KEYS = ("start", "end", "start_at", "end_at")
_EXPECTED = "must be a number or a schedule like lin_3e-4"


@dataclass(frozen=True)
class Schedule:
    """A value that is constant, or moves in a straight line from `start` to `end`.

    ```
    start ────╮
               ╲
                ╰──── end
        start_at  end_at
    ```

    Positions up to 1 are fractions of the run's budget (1.0 is all of it); larger ones are environment steps.
    """

    start: float
    end: float
    start_at: float = 0.0
    end_at: float = 1.0

    @classmethod
    def constant(cls, value: float) -> Schedule:
        """Return a schedule that never changes."""
        return cls(value, value)

    @classmethod
    def parse(cls, value: object) -> Schedule:
        """Read a number, `lin_3e-4` (from 3e-4 down to 0), or a mapping with start/end/start_at/end_at."""
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
        numbers = {key: _number(key, value) for key, value in parts.items()}
        start, end = numbers["start"], numbers.get("end", 0.0)
        first, last = numbers.get("start_at", 0.0), numbers.get("end_at", 1.0)
        if first < 0 or last <= 0:
            raise ValueError("a schedule's start_at must be at least 0 and its end_at above 0")
        if (first <= 1) == (last <= 1) and first > last:
            raise ValueError("a schedule's end_at must not be before its start_at")
        return cls.constant(start) if start == end else cls(start, end, first, last)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same at every step."""
        return self.start == self.end

    def at(self, env_steps: int, total_steps: int) -> float:
        """Return the value after `env_steps` of a run of `total_steps`."""
        if self.is_constant:
            return self.start
        first, last = (p * total_steps if p <= 1 else p for p in (self.start_at, self.end_at))
        if env_steps <= first:
            return self.start
        if env_steps >= last:
            return self.end
        return self.start + (self.end - self.start) * (env_steps - first) / (last - first)

    def to_plain(self) -> object:
        """Return the form that a YAML file holds."""
        if self.is_constant:
            return self.start
        return {key: getattr(self, key) for key in _KEYS}


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

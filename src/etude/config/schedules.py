"""Hyper-parameters that change over a run, as pure functions of how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from etude.errors import did_you_mean

Unit = Literal["env_steps", "decisions", "updates"]
UNITS: tuple[Unit, ...] = get_args(Unit)
Shape = Literal["line", "cosine"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
SHORT: dict[str, Shape] = {"lin_": "line", "cos_": "cosine"}
"""How a schedule down to 0 over the whole run begins, as a word."""
COLD = 0.01
"""What a warm-up begins with, as a part of what it rises to: the first cycle of a run learns something."""
_KEYS = ("start", "end", "start_at", "end_at", "unit", "shape")
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
    """A value that is constant, or moves from `start` to `end`, in a straight line or along half a cosine.

    ```
        ╭─ start ────╮
       ╱              ╲
      ╱                ╰──── end
    warmup     start_at  end_at
    ```

    Positions up to 1 are fractions of the run (1.0 is all of it); larger ones are counts of its unit. Over the first `warmup`,
    a fraction of the run or a number of updates, it is that part of the value which is over.
    """

    start: float
    end: float
    start_at: float = 0.0
    end_at: float = 1.0
    unit: Unit = "env_steps"
    shape: Shape = "line"
    warmup: float = 0.0

    @classmethod
    def constant(cls, value: float) -> Schedule:
        """Return a schedule that never changes."""
        return cls(value, value)

    @classmethod
    def parse(cls, value: object) -> Schedule:
        """Read a number, `lin_3e-4` or `cos_3e-4` (from 3e-4 down to 0), a mapping of its parts, or one of warmup and then."""
        if isinstance(value, Schedule):
            return value
        if isinstance(value, dict):
            return cls._warmed_up(value) if "warmup" in value or "then" in value else cls._from_parts(value)
        if isinstance(value, str) and value[:4] in SHORT:
            return cls._from_parts({"start": value[4:], "shape": SHORT[value[:4]]})
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
    def _warmed_up(cls, parts: dict[str, object]) -> Schedule:
        if set(parts) != {"warmup", "then"}:
            unknown = [key for key in parts if key not in ("warmup", "then")]
            wrong = f"not {unknown[0]!r}" if unknown else f"and {({'warmup', 'then'} - set(parts)).pop()!r} is missing"
            raise ValueError(f"a warm-up is written {{warmup: 1000, then: cos_3e-4}}, {wrong}")
        then, warmup = cls.parse(parts["then"]), _number("warmup", parts["warmup"])
        if then.warmup:
            raise ValueError("what comes after a warm-up has no warm-up of its own")
        if warmup <= 0:
            raise ValueError("a schedule's warmup must be above 0: a number of updates, or up to 1 a fraction of the run")
        return replace(then, warmup=warmup)

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
        shape = parts.get("shape", "line")
        if shape not in SHAPES:
            raise ValueError(f"a schedule's shape is {' or '.join(SHAPES)}, not {shape!r}{did_you_mean(str(shape), SHAPES)}")
        numbers = {key: _number(key, value) for key, value in parts.items() if key not in ("unit", "shape")}
        start, end = numbers["start"], numbers.get("end", 0.0)
        first, last = numbers.get("start_at", 0.0), numbers.get("end_at", 1.0)
        if first < 0 or last <= 0:
            raise ValueError("a schedule's start_at must be at least 0 and its end_at above 0")
        if (first <= 1) == (last <= 1) and first > last:
            raise ValueError("a schedule's end_at must not be before its start_at")
        if unit != "env_steps" and first > 0 and (first <= 1) != (last <= 1):
            raise ValueError(f"a schedule in {unit} has both positions up to 1 (fractions of the run) or both above (counts)")
        return cls.constant(start) if start == end else cls(start, end, first, last, unit, shape)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same at every step."""
        return self.start == self.end and not self.warmup

    def at(self, now: Moment) -> float:
        """Return the value at a moment of a run."""
        return self._then(now) if not self.warmup else self._then(now) * max(COLD, self._warm(now))

    def _warm(self, now: Moment) -> float:
        """Return how much of the warm-up is over."""
        if self.warmup > 1:
            return min(1.0, now.updates / self.warmup)
        done = now.stretch.fraction if now.stretch is not None else now.env_steps / now.total_steps
        return min(1.0, done / self.warmup)

    def _then(self, now: Moment) -> float:
        if self.start == self.end:
            return self.start
        done, first, last = self._along(now)
        if done <= first:
            return self.start
        if done >= last:
            return self.end
        along = (done - first) / (last - first)
        return self.start + (self.end - self.start) * (along if self.shape == "line" else (1 - math.cos(math.pi * along)) / 2)

    def moves_by_update(self, now: Moment) -> bool:
        """Whether each update of this phase has a value of its own."""
        moves = self.start != self.end
        counts = moves and not self._is_of_the_run and self.unit == "updates"
        if counts or (self.warmup > 1 and now.updates < self.warmup):
            return True
        if not (moves and self._is_of_the_run) and not 0 < self.warmup <= 1:
            return False
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
        if self.warmup:
            return {"warmup": self.warmup, "then": replace(self, warmup=0.0).to_plain()}
        if self.is_constant:
            return self.start
        usual = {"unit": "env_steps", "shape": "line"}  # what is as it always was is written as it always was
        return {key: getattr(self, key) for key in _KEYS if getattr(self, key) != usual.get(key)}


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

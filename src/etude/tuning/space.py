"""What a search may change: for each key a list of choices, a range, or an expression over other keys."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from etude.config.validate import Validator
from etude.errors import ConfigError, UserError, did_you_mean
from etude.tuning.expressions import Expression

Values = dict[str, Any]
MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Choices:
    """One of some values, lists and mappings among them."""

    values: tuple[Any, ...]

    def draw(self, random: Random) -> Any:
        """Return one of them."""
        return random.choice(self.values)

    def grid(self) -> tuple[Any, ...]:
        """Return all of them."""
        return self.values


@dataclass(frozen=True)
class Range:
    """A number between two bounds, both included."""

    low: float
    """The least."""
    high: float
    """The most."""
    log: bool = False
    """Every order of magnitude is as likely as the others, for rates and the like."""
    step: float | None = None
    """Only low, low + step, low + 2 step, ..."""
    points: int | None = None
    """How many values a grid takes of it, both ends among them."""
    integer: bool = False
    """Whole numbers only. Default: where both bounds are written as whole numbers."""

    def __post_init__(self) -> None:
        """A range goes upwards, and can be drawn from."""
        if not self.low <= self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}")
        if self.log and not self.low > 0:
            raise ValueError(f"low={self.low:g}: a logarithmic range begins above 0")
        if self.log and self.step is not None:
            raise ValueError("log and step: choose one")
        if self.step is not None and not self.step > 0:
            raise ValueError(f"step={self.step:g}: must be above 0")
        if self.points is not None and self.points < 1:
            raise ValueError(f"points={self.points}: must be at least 1")

    def draw(self, random: Random) -> Any:
        """Return a number of the range."""
        if self.step is not None:
            return self.tidy(self.low + self.step * random.randint(0, self._steps))
        if self.integer and not self.log:
            return random.randint(int(self.low), int(self.high))
        if self.log:
            # Of whole numbers each has the width that it has on the axis.
            widen = 0.5 if self.integer else 0.0
            found = math.exp(random.uniform(math.log(self.low - widen), math.log(self.high + widen)))
        else:
            found = random.uniform(self.low, self.high)
        return self.tidy(min(max(found, self.low), self.high))

    def grid(self) -> tuple[Any, ...]:
        """Return the values that a grid takes of it."""
        if self.points is not None:
            shares = [index / max(1, self.points - 1) for index in range(self.points)]
            between = [self._at(share) for share in shares]
            return tuple(dict.fromkeys(self.tidy(value) for value in between))
        if self.step is not None:
            return tuple(self.tidy(self.low + self.step * index) for index in range(self._steps + 1))
        if self.integer and not self.log and self.high - self.low < 1000:
            return tuple(range(int(self.low), int(self.high) + 1))
        raise UserError("a grid takes a list, or a range with step or points")

    @property
    def _steps(self) -> int:
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9)

    def _at(self, share: float) -> float:
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)

    def tidy(self, value: float) -> Any:
        """Return a number as a setting: whole where it must be, within the bounds, without a tail of digits."""
        # Twelve digits: what a sum or a logarithm leaves in the last bit is no part of a setting.
        return round(value) if self.integer else min(max(float(f"{value:.12g}"), self.low), self.high)


@dataclass(frozen=True)
class Derived:
    """A value that follows from other keys, or is drawn without being searched for."""

    expression: Expression


Dimension = Choices | Range


@dataclass(frozen=True)
class Space:
    """All that a search may change, by dotted key."""

    searched: dict[str, Dimension] = field(default_factory=dict)
    derived: dict[str, Derived] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many points a grid has."""
        return math.prod(len(values) for values in self.grid_values().values())

    def grid_values(self) -> dict[str, tuple[Any, ...]]:
        """Return the values that a grid takes of every searched key."""
        found: dict[str, tuple[Any, ...]] = {}
        for key, dimension in self.searched.items():
            try:
                found[key] = dimension.grid()
            except UserError as error:
                raise ConfigError(f"sweep.{key}: {error}") from None
        return found

    def grid(self) -> list[Values]:
        """Return every point of the grid; the last key turns fastest."""
        if self.size > MOST_POINTS:
            raise UserError(f"the grid has {self.size:,} points; method: random or bayes takes some of them")
        values = self.grid_values()
        return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]

    def draw(self, seed: int, number: int) -> Values:
        """Return the point of a random search at a trial's number: the same whenever it is asked."""
        return {key: dimension.draw(stream(seed, number, key)) for key, dimension in self.searched.items()}

    def without(self, fixed: Mapping[str, Any]) -> Space:
        """Return the space without keys that somebody has fixed."""
        return replace(
            self,
            searched={key: dimension for key, dimension in self.searched.items() if key not in fixed},
            derived={key: dimension for key, dimension in self.derived.items() if key not in fixed},
        )

    def complete(self, values: Mapping[str, Any], seed: int, number: int, others: Callable[[str], Any]) -> Values:
        """Return the values of a trial with everything that follows from them; `others` knows keys that are not searched."""
        known, under_way = dict(values), []

        def look_up(key: str) -> Any:
            if key in known or key not in self.derived:
                return known[key] if key in known else others(key)
            if key in under_way:
                raise UserError(f"sweep.{key}: refers to itself, through {' and '.join([*under_way, key])}")
            under_way.append(key)
            try:
                known[key] = self.derived[key].expression.evaluate(look_up, stream(seed, number, key))
            except UserError as error:
                text = str(error)
                raise UserError(text if text.startswith("sweep.") else f"sweep.{key}: {text}") from None
            finally:
                under_way.remove(key)
            return known[key]

        return {**values, **{key: look_up(key) for key in self.derived}}


def stream(seed: int, number: int, key: str) -> Random:
    """Return the generator of one key of one trial, whatever else is drawn."""
    return Random(hashlib.sha256(f"{seed}/{number}/{key}".encode()).digest())


def read_space(data: Mapping[str, Any]) -> Space:
    """Read the `sweep` section: key → a list, a range {low, high, ...}, {values: [...]} or {sample_from: expression}."""
    searched: dict[str, Dimension] = {}
    derived: dict[str, Derived] = {}
    problems: list[str] = []
    for key, written in data.items():
        try:
            dimension = _dimension(key, written)
        except ConfigError as error:
            problems += error.problems
        except UserError as error:
            problems.append(f"sweep.{key}: {error}")
        else:
            if isinstance(dimension, Derived):
                derived[key] = dimension
            else:
                searched[key] = dimension
    if problems:
        raise ConfigError(*problems)
    return Space(searched, derived)


def _dimension(key: str, written: Any) -> Dimension | Derived:
    if isinstance(written, list | tuple):
        return _choices(written)
    if not isinstance(written, Mapping):
        return _choices([written])
    if "sample_from" in written:
        _only(key, written, "sample_from")
        return Derived(Expression(str(written["sample_from"])))
    if "values" in written:
        _only(key, written, "values")
        if not isinstance(written["values"], list | tuple):
            raise UserError("values: must be a list")
        return _choices(written["values"])
    if not {"low", "high"} & set(written):
        known = ["low", "high", "log", "step", "points", "integer", "values", "sample_from"]
        near = next((hint for name in written if (hint := did_you_mean(str(name), known))), "")
        raise UserError(f"a list of values, a range {{low: 1e-4, high: 1e-2, log: true}}, or {{sample_from: ...}}{near}")
    data = dict(written)
    whole = all(isinstance(data.get(end), int) and not isinstance(data.get(end), bool) for end in ("low", "high"))
    whole = whole and isinstance(data.get("step", 1), int)
    return Validator().build(Range, {"integer": whole, **data}, f"sweep.{key}")


def _only(key: str, written: Mapping[str, Any], name: str) -> None:
    others = [str(other) for other in written if other != name]
    if others:
        raise ConfigError(f"sweep.{key}.{others[0]}: nothing goes beside {name}")


def _choices(values: Any) -> Choices:
    if not values:
        raise UserError("an empty list has no values")
    shown = [repr(value) for value in values]
    repeated = next((text for text in shown if shown.count(text) > 1), None)
    if repeated is not None:
        raise UserError(f"{repeated} is there twice")
    return Choices(tuple(values))

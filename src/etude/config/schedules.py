"""Hyper-parameters that change over a run, as pure functions of the environment steps done."""

from __future__ import annotations

from dataclasses import dataclass

_KEYS = ("start", "end", "start_at", "end_at")


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
        if isinstance(value, bool):
            raise ValueError("a switch is not a number")
        if isinstance(value, int | float):
            return cls.constant(float(value))
        if isinstance(value, str):
            kind, _, number = value.partition("_")
            try:
                return cls(float(number), 0.0) if kind == "lin" else cls.constant(float(value))
            except ValueError:
                raise ValueError("neither a number nor a schedule like lin_3e-4") from None
        if isinstance(value, dict):
            unknown = sorted(set(value) - set(_KEYS))
            if unknown:
                raise ValueError(f"a schedule has the keys {', '.join(_KEYS)}, not {unknown[0]!r}")
            if "start" not in value:
                raise ValueError("a schedule needs a start value")
            parts = {key: _number(key, item) for key, item in value.items()}
            schedule = cls(parts["start"], parts.get("end", 0.0), parts.get("start_at", 0.0), parts.get("end_at", 1.0))
            if schedule.start_at < 0 or schedule.end_at <= 0:
                raise ValueError("a schedule's positions can't be negative")
            return schedule
        raise ValueError("neither a number nor a schedule like lin_3e-4")

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


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"its {key} is not a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"its {key} is not a number") from None

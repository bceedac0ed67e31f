"""The five counters of a run, and the grids on which things happen along them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Counters:
    """How far a run is. They never mix, and every metric row carries all five."""

    decisions: int = 0
    """Actions chosen."""
    env_steps: int = 0
    """Decisions times action repeat: the unit of budgets and plots."""
    updates: int = 0
    """Gradient steps."""
    episodes: int = 0
    """Episodes finished; refreshed when a row is logged or the run is saved."""
    cycles: int = 0
    """Passes over a phase's hooks."""

    def as_dict(self) -> dict[str, int]:
        """Return all five by name."""
        return asdict(self)

    state_dict = as_dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting."""
        for name in self.as_dict():
            setattr(self, name, state[name])


class Cadence:
    """Something due each time a counter passes another multiple of `every`, strictly after a warm-up.

    A counter may jump over a multiple (eight environments step together); it is then due at once, and only once.
    """

    def __init__(self, every: int | None, after: int = 0) -> None:
        self.every = every or 0
        self._next = self._following(after)

    def is_due(self, now: int) -> bool:
        """Whether a multiple has been passed since the last `done`."""
        return self.every > 0 and now >= self._next

    def distance(self, now: int) -> int | None:
        """How far the next multiple is, or None if there is none."""
        return max(0, self._next - now) if self.every else None

    def done(self, now: int) -> None:
        """Note that it happened; it is next due at the first multiple after `now`."""
        if self.every:
            self._next = max(self._next, self._following(now))

    def _following(self, now: int) -> int:
        return (now // self.every + 1) * self.every if self.every else 0

    def state_dict(self) -> dict[str, int]:
        """Return when it is next due, and on which grid."""
        return {"next": self._next, "every": self.every}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Keep the grid; one that was changed since begins after the last multiple."""
        if state["every"] == self.every:
            self._next = state["next"]
        elif self.every and state["every"]:
            self._next = self._following(max(0, state["next"] - state["every"]))

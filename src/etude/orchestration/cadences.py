"""When rows, evaluations and saves come: on grids of environment steps, or of updates in phases that don't collect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.orchestration.counters import Counters


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

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Keep the grid; one that was changed since begins after the last multiple."""
        if state["every"] == self.every:
            self._next = state["next"]
        elif self.every and state["every"]:
            self._next = self._following(max(0, state["next"] - state["every"]))


@dataclass(frozen=True)
class Cadences:
    """How often things happen. Steps count while a phase collects, updates while it does not."""

    log_steps: int
    log_updates: int
    evaluate_steps: int = 0
    evaluate_updates: int = 0
    evaluate_warmup: int = 0
    save_steps: int = 0
    save_updates: int = 0
    save_minutes: float | None = None


class Grids:
    """The cadences of one run, and where each stands."""

    def __init__(self, cadences: Cadences, counters: Counters) -> None:
        self._counters = counters
        self._by_steps = {
            "log": Cadence(cadences.log_steps),
            "evaluate": Cadence(cadences.evaluate_steps, after=cadences.evaluate_warmup),
            "save": Cadence(cadences.save_steps),
        }
        self._by_updates = {
            "log": Cadence(cadences.log_updates),
            "evaluate": Cadence(cadences.evaluate_updates),
            "save": Cadence(cadences.save_updates),
        }

    def has(self, event: str) -> bool:
        """Whether it ever comes by itself."""
        return bool(self._by_steps[event].every or self._by_updates[event].every)

    def is_due(self, event: str, *, collects: bool) -> bool:
        """Whether it is due, in a phase that collects or does not."""
        by_updates = not collects and self._by_updates[event].is_due(self._counters.updates)
        return by_updates or self._by_steps[event].is_due(self._counters.env_steps)

    def done(self, event: str) -> None:
        """Note that it happened."""
        self._by_steps[event].done(self._counters.env_steps)
        self._by_updates[event].done(self._counters.updates)

    def enter(self) -> None:
        """Another phase begins: updates that were taken while steps counted are no reason for anything."""
        for cadence in self._by_updates.values():
            cadence.done(self._counters.updates)

    def limits(self) -> tuple[int | None, int | None]:
        """Return how many environment steps, and how many updates, the next event is away."""
        steps = [c.distance(self._counters.env_steps) for c in self._by_steps.values() if c.every]
        updates = [c.distance(self._counters.updates) for c in self._by_updates.values() if c.every]
        return min(steps, default=None), min(updates, default=None)  # type: ignore[type-var] # None only without `every`

    def state_dict(self) -> dict[str, Any]:
        """Return where each stands."""
        return {
            kind: {event: cadence.state_dict() for event, cadence in grid.items()}
            for kind, grid in (("steps", self._by_steps), ("updates", self._by_updates))
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for kind, grid in (("steps", self._by_steps), ("updates", self._by_updates)):
            for event, cadence in grid.items():
                cadence.load_state_dict(state[kind][event])

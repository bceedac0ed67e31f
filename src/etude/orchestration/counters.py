"""The five counters of a run."""

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

"""A whole number that is part of a run's state."""

from __future__ import annotations

from typing import Any


class Counter:
    """Counts up; a tensor would do too, and cost ten times as much at every step."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a count."""
        value = state["value"]
        if type(value) is not int or value < 0:
            raise ValueError(f"{str(value)[:60]!r} is not a count")
        self.value = value

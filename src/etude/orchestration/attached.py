"""What is attached to the loop: where its rows and checkpoints go, and who answers the user between cycles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

Row = dict[str, float]


class RowSink(Protocol):
    """Where rows of metrics go."""

    def write(self, rows: Sequence[Row]) -> None:
        """Take rows in."""
        ...


class CheckpointWriter(Protocol):
    """Where the run's state goes; returns the place it went to."""

    def __call__(self, parts: dict[str, Any], counters: dict[str, int], metadata: dict[str, Any], *, best: bool) -> Path:
        """Write the parts of a checkpoint."""
        ...


class Attendant(Protocol):
    """Answers, between cycles, what a user asks of a run while it trains."""

    def look(self) -> bool:
        """See what was asked since the last boundary; True for something that needs a save here."""
        ...

    def go_on(self) -> None:
        """Do what was to be done after that save, if there was one; the next cycle follows."""
        ...

"""What the console is given about a run: once when it starts and once when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etude.telemetry.names import Row


@dataclass(frozen=True)
class RunHeader:
    """What a run is, known before its first step."""

    run_id: str
    run_dir: Path
    environment: str
    algorithm: str
    device: str
    mode: str
    """How updates are computed: eager, compiled or captured."""
    seed: int
    num_envs: int
    total_steps: int | None = None
    """The budget in env_steps; an offline run has `total_updates` instead."""
    total_updates: int | None = None
    phases: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Whole lines shown once at the start: buffer memory, where a resumed run continues."""

    @property
    def counter(self) -> str:
        """The counter that measures this run's progress."""
        return "updates" if self.total_steps is None and self.total_updates is not None else "env_steps"

    @property
    def unit(self) -> str:
        """The progress counter's name in a sentence."""
        return self.counter.removeprefix("env_")

    def progress(self, latest: Row) -> float | None:
        """Return how much of the budget is spent, 0 to 1, or None without a budget."""
        total = self.total_steps if self.counter == "env_steps" else self.total_updates
        return min(1.0, latest.get(self.counter, 0) / total) if total else None


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended and what to do with it."""

    status: Literal["finished", "stopped", "interrupted", "failed"]
    reason: str
    run_id: str
    run_dir: Path
    best: float | None
    last_eval: float | None
    elapsed_s: float
    env_steps: int
    next_commands: list[str] = field(default_factory=list)
    best_at: int | None = None
    """The environment steps at which the best was reached."""

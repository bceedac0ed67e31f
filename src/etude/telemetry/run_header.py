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
    """The budget in env_steps; None where nothing collects."""
    total_updates: int | None = None
    """The updates of phases that don't collect, if there are any."""
    phases: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Whole lines shown once at the start: buffer memory, where a resumed run continues."""

    @property
    def totals(self) -> dict[str, int | None]:
        """What the run's progress is counted in, and how much of it there will be; None: nobody knows."""
        if not self.total_updates:
            return {"env_steps": self.total_steps}
        # Where both count, updates are also taken beside steps, as many as it happens.
        return {"env_steps": self.total_steps, "updates": None} if self.total_steps else {"updates": self.total_updates}

    def progress(self, latest: Row) -> float | None:
        """Return how much of the run is over, 0 to 1, or None where nobody knows: by its clock, or by its only counter."""
        if "time/progress" in latest:
            return latest["time/progress"]
        (counter, total), *others = self.totals.items()
        return min(1.0, latest.get(counter, 0) / total) if total and not others else None


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
    updates: int | None = None
    """Updates taken, where phases without environment steps make them worth saying."""
    best_updates: int | None = None
    """Those at which the best was reached."""

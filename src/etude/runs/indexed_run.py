"""A run as a list of runs shows it: who it is, how it stands, and what came of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MONITOR = "eval/return_mean"
"""What runs monitor unless their config names something else."""


@dataclass(frozen=True)
class IndexedRun:
    """What the files of one run directory say, in short. Whatever they don't say is None."""

    id: str
    path: Path
    name: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    environment: str | None = None
    algorithm: str | None = None
    seed: int | None = None
    status: str = "created"
    """As ``Run.status``: ``crashed`` when it should be running and its process is gone."""
    created: str | None = None
    """ISO 8601, in UTC."""
    env_steps: int | None = None
    updates: int | None = None
    episodes: int | None = None
    total_steps: int | None = None
    elapsed_s: float | None = None
    best: float | None = None
    best_metric: str | None = None
    """The metric that the run monitors."""
    best_mode: str = "max"
    """``min`` where its lowest value is the best."""
    best_step: int | None = None
    """The environment steps at which the best was reached."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last known value of every metric; the last evaluation is always among them."""
    config: dict[str, Any] = field(default_factory=dict)
    """Every resolved setting by its full name, such as ``algorithm.gamma``."""
    config_hash: str | None = None
    setup_hash: str | None = None
    """Equal for runs that differ in nothing but the seed."""
    commit: str | None = None
    cleaned: str | None = None
    """When its checkpoints were cleaned up, if they were."""

    @property
    def created_at(self) -> datetime | None:
        """When it was created, as a time with its zone."""
        try:
            moment = datetime.fromisoformat(self.created or "")
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    @property
    def last(self) -> float | None:
        """The monitored metric of the last evaluation."""
        return self.metrics.get(self.best_metric or MONITOR)

"""What a hook of an algorithm is told, and what it says of what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from etude.config.phases import PhaseType
from etude.config.schedules import Moment, Stretch
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class HookResult:
    """What a hook did. All zeros means that it had nothing to do, and counts for nothing."""

    decisions: int = 0
    env_steps: int = 0
    updates: int = 0
    metrics: Metrics = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done."""
        return not (self.decisions or self.env_steps or self.updates or self.metrics)


class LeftAmidError(Exception):
    """A hook was asked to stop, and everything is as before its call: it will be called again, and does the same."""


def never() -> bool:
    """Return that nobody asks to stop."""
    return False


@dataclass(frozen=True)
class Phase:
    """The phase a hook runs in, as it stands when the hook is called."""

    name: str
    type: PhaseType = "online"
    buffer: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    steps_done: int = 0
    """Environment steps of this phase."""
    updates_done: int = 0
    cycles_done: int = 0
    progress: float = 0.0
    """How much of this phase is over, from 0 to 1."""
    env_steps: int = 0
    """Environment steps of the whole run."""
    total_steps: int = 1
    cycle_began: int | None = None
    """Environment steps of the whole run when this cycle began; None: now. Schedules are read there, so that a rollout and what
    is learnt from it have one value, and the last update of a rate that falls to 0 is not at 0."""
    decisions: int = 0
    """Decisions of the whole run when this cycle began."""
    updates: int = 0
    """Updates of the whole run."""
    stretch: Stretch | None = None
    """What this phase makes of the run, where the budget alone does not measure it."""
    asked_to_stop: Callable[[], bool] = never
    """Whether the run is asked to stop, in any of the processes that train it, which all ask at the same places. A hook
    that takes seconds may then undo what it has begun, and raise `LeftAmidError`."""

    @property
    def now(self) -> Moment:
        """The moment at which schedules are read: of steps as this cycle began, of updates now."""
        began = self.env_steps if self.cycle_began is None else self.cycle_began
        return Moment(began, self.total_steps, self.decisions, self.updates, self.stretch)

    def after(self, *, env_steps: int = 0, updates: int = 0) -> Phase:
        """Return the same phase once so much more was done in this cycle."""
        return replace(
            self,
            env_steps=self.env_steps + env_steps,
            steps_done=self.steps_done + env_steps,
            updates=self.updates + updates,
            updates_done=self.updates_done + updates,
            stretch=self.stretch and self.stretch.later(updates=updates),
        )

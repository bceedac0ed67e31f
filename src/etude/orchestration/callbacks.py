"""Things that watch a run: they may look at everything, change nothing, and ask it to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Row = Mapping[str, float]
MOST_RECENT = 1000
"""Rows that a callback can look back on."""


class AlertBoard(Protocol):
    """Where alerts are raised and taken back."""

    def send_alert(self, id: str, message: str, *, tip: str = "", metric: str = "") -> None:
        """Raise an alert, unless it is active already."""
        ...

    def clear_alert(self, id: str) -> None:
        """Take one back."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where the run is when a callback is called."""

    counters: Mapping[str, int]
    phase: str
    total_steps: int
    run_dir: Path | None
    policy: Callable[[], Any] | None = None
    """Returns the policy as it is now; acting with it changes nothing."""
    fraction: float = 0.0
    """How much of the run is over, by its clock: 0 to 1."""
    recent: Sequence[Row] = ()
    """The last rows of metrics, oldest first, up to a thousand of them; earlier sittings' too."""
    alerts: AlertBoard | None = None

    def send_alert(self, id: str, message: str, *, tip: str = "", metric: str = "") -> None:
        """Raise an alert of your own, told and kept as the built-in ones are; one that is active is not raised again."""
        if self.alerts is not None:
            self.alerts.send_alert(id, message, tip=tip, metric=metric)

    def clear_alert(self, id: str) -> None:
        """Say that it no longer holds."""
        if self.alerts is not None:
            self.alerts.clear_alert(id)


class Callback:
    """Override the events you care about. A returned text stops the run and becomes its stop reason.

    Called at cycle boundaries only. State of your own goes through `state_dict` and `load_state_dict`.
    """

    def bind(self, config: Any, environment: Any) -> None:
        """See the run's settings and its environment before it begins; raise UserError if that can't work."""

    def on_start(self, progress: Progress) -> None:
        """Training begins, or goes on after a resume."""

    def on_cycle(self, progress: Progress) -> str | None:
        """A cycle is complete."""

    def on_evaluation_start(self, progress: Progress) -> None:
        """An evaluation is about to run."""

    def on_log(self, progress: Progress) -> Row:
        """A row of metrics is about to be written: return those of your own for it."""
        return {}

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """A row of metrics was logged; after an evaluation it holds the eval/ metrics too."""

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        """The run was saved."""

    def on_exception(self, progress: Progress, error: BaseException) -> None:
        """A hook failed; the run is as it was last saved, and `on_end` follows."""

    def on_end(self, progress: Progress, reason: str) -> None:
        """Training is over, for now or for good."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""


class EarlyStop(Callback):
    """Stops the run once a metric reaches a threshold."""

    def __init__(self, metric: str, threshold: float, min_episodes: int = 0) -> None:
        self.metric, self.threshold, self.min_episodes = metric, threshold, min_episodes

    def on_evaluation_start(self, progress: Progress) -> None:
        """An evaluation is about to run."""

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """Compare a row's metric with the threshold."""
        value = row.get(self.metric)
        if value is None or value < self.threshold or progress.counters["episodes"] < self.min_episodes:
            return None
        return f"{self.metric} {value:g} reached {self.threshold:g}"


def states_of(callbacks: Sequence[Callback]) -> list[dict[str, Any]]:
    """Return what of each callback goes into a checkpoint."""
    return [{"type": _name(callback), "state": callback.state_dict()} for callback in callbacks]


def load_states(callbacks: Sequence[Callback], saved: list[dict[str, Any]]) -> list[str]:
    """Restore each callback that was there already, in order; one that a resume has added begins now. Returns what to say."""
    if not all(set(entry) == {"type", "state"} for entry in saved):  # of an earlier version: the states alone
        saved = [{"type": _name(each), "state": entry} for each, entry in zip(callbacks, saved, strict=False)]
    waiting = [(_without_place(entry["type"]), entry["state"]) for entry in saved]
    notes = []
    for callback in callbacks:
        name = _name(callback)
        place = next((index for index, (kind, _) in enumerate(waiting) if kind == name), None)
        if place is None:
            notes.append(f"callback {name.rpartition('.')[2]} begins here")
        else:
            callback.load_state_dict(waiting.pop(place)[1])
    return notes + [f"callback {kind.rpartition('.')[2]} ends here" for kind, _ in waiting]


def _name(callback: Callback) -> str:
    return _without_place(f"{type(callback).__module__}.{type(callback).__qualname__}")


def _without_place(name: str) -> str:
    """Our own classes may move from module to module, and stay the callbacks that a checkpoint speaks of."""
    return name.rpartition(".")[2] if name.startswith("etude.") else name

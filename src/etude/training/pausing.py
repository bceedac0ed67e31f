"""A run that pauses at a number of steps: saved as by a signal, and to be resumed exactly."""

from __future__ import annotations

from etude.orchestration.callbacks import Callback, Progress, Row
from etude.training.session import Training


class _PauseAt(Callback):
    """Asks for the pause at the first row from `env_steps` on; with evaluations, at the first that has one."""

    def __init__(self, training: Training, env_steps: int) -> None:
        self._training, self._env_steps = training, env_steps
        self._evaluates = training.config.evaluation.every_steps != 0

    def on_row(self, progress: Progress, row: Row) -> None:
        measured = not self._evaluates or any(name.startswith("eval/") for name in row)
        if measured and row["env_steps"] >= self._env_steps:
            # Not as a stop: that would log and evaluate once more, and the run would no longer be the one that never paused.
            self._training.stop(f"paused at {row['env_steps']:,.0f} environment steps")


def pause_at(training: Training, env_steps: int | None) -> None:
    """Let a run save itself and stop at the first evaluation from this many environment steps on."""
    if env_steps is not None:
        training.orchestrator.add_callback(_PauseAt(training, env_steps))

"""Keeps run_status.json up to date: at cycle boundaries, about once a second, and once more at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.runs.status_file import write_status
from etude.telemetry.alerts import Alerts

EVERY_S = 1.0
MAIN_METRICS = (
    "eval/return_mean",
    "collect/return_mean",
    "collect/length_mean",
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/grad_norm",
    "hp/learning_rate",
)


class StatusReport:
    """A sink that remembers the last values of the main metrics, and writes the run's status when it is told to."""

    name = "run_status.json"

    def __init__(
        self,
        run: Run,
        orchestrator: Orchestrator,
        alerts: Alerts,
        *,
        past: Sequence[Mapping[str, float]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._orchestrator, self._alerts, self._clock = run, orchestrator, alerts, clock
        self.active_alerts: Callable[[], int] = lambda: 0
        """How many alerts about the run's metrics hold."""
        self._metrics: dict[str, float] = {}
        self._times: dict[str, float] = {}
        self._row_at = self._next = clock()
        self.write(past)

    def write(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Take new rows in; they are told with the next status."""
        for row in rows:
            for name in dict.fromkeys((self._orchestrator.best.monitor.metric, *MAIN_METRICS)):
                if name in row:
                    self._metrics[name] = row[name]
            self._times = {name: row[name] for name in ("time/eta_s", "time/steps_per_second") if name in row}
            self._row_at = self._clock()

    def refresh(self, state: str = "running", *, at_once: bool = False) -> None:
        """Write how the run stands, if it is time to, or at once."""
        now = self._clock()
        if now < self._next and not at_once:
            return
        self._next = now + EVERY_S
        with self._alerts.about("run_status.json", "tried again a second later; the run itself goes on"):
            write_status(self._run.status_path, self._facts(state, now))

    def end(self, state: str) -> None:
        """Write the last status of a sitting."""
        self._times.pop("time/eta_s", None)
        self.refresh(state, at_once=True)

    def _facts(self, state: str, now: float) -> dict[str, Any]:
        loop = self._orchestrator
        eta = self._times.get("time/eta_s")
        return {
            "state": state,
            "phase": loop.scheduler.current_phase.name,
            "counters": loop.counters.as_dict(),
            "total_steps": loop.scheduler.total_steps,
            "fraction": loop.scheduler.reading().fraction,
            "eta_s": None if eta is None else max(0.0, eta - (now - self._row_at)),
            "steps_per_second": self._times.get("time/steps_per_second"),
            "metrics": dict(self._metrics),
            "alerts": self.active_alerts(),
            "stop_reason": loop.stop_reason,
        }

    def flush(self) -> None:
        """Nothing waits here but the status, which has its own rhythm."""

    def close(self) -> None:
        """Nothing is held here."""

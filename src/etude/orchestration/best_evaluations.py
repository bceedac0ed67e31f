"""Which evaluations were the best so far, by the metric that a run monitors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from etude.errors import UserError


@dataclass(frozen=True)
class Monitor:
    """What decides which checkpoint is the best."""

    metric: str = "eval/return_mean"
    mode: Literal["max", "min"] = "max"
    keep: int = 1
    """How many of the best policies are kept."""

    @property
    def best_name(self) -> str:
        """The metric under which the best value so far is logged: ``eval/return_best`` of ``eval/return_mean``."""
        return f"{self.metric.removesuffix('_mean')}_best"


class Ranked(NamedTuple):
    """An evaluation among the best."""

    place: int
    """0 for the best."""
    value: float


class BestEvaluations:
    """The best evaluations of a run, as many as policies are kept; of equal ones the first is the best."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._kept: list[tuple[float, int | None, int | None]] = []  # value, environment steps and updates, the best first

    @property
    def value(self) -> float | None:
        """The best value so far."""
        return self._kept[0][0] if self._kept else None

    @property
    def env_steps(self) -> int | None:
        """When it was reached; None too where a checkpoint of an earlier Etude did not say."""
        return self._kept[0][1] if self._kept else None

    @property
    def updates(self) -> int | None:
        """The updates taken by then, which go on where environment steps stand still; None as above."""
        return self._kept[0][2] if self._kept else None

    def add(self, metrics: Mapping[str, float], env_steps: int, updates: int) -> Ranked | None:
        """Take an evaluation in and return its place among the best; None when it is not among them."""
        value = metrics.get(self.monitor.metric)
        if value is None and metrics.get("eval/episodes"):
            raise UserError(
                f"checkpoint.monitor={self.monitor.metric}: evaluations of this task measure {', '.join(metrics)}; "
                "go on with `etude resume RUN checkpoint.monitor=...`"
            )
        if value is None or not math.isfinite(value):  # no episode ended in time, or the task pays without end
            return None
        place = sum(self._is_as_good(kept, value) for kept, *_ in self._kept)
        if place >= self.monitor.keep:
            return None
        self._kept.insert(place, (value, env_steps, updates))
        del self._kept[self.monitor.keep :]
        return Ranked(place, value)

    def _is_as_good(self, kept: float, value: float) -> bool:
        return kept >= value if self.monitor.mode == "max" else kept <= value

    def state_dict(self) -> dict[str, Any]:
        """Return the values, and what they are of."""
        return {"metric": self.monitor.metric, "mode": self.monitor.mode, "kept": [[*kept] for kept in self._kept]}

    def load_state_dict(self, state: Mapping[str, Any] | float | None) -> None:
        """Take over what was saved. Values of another metric say nothing of this one; checkpoints once held the best alone."""
        self._kept = []
        if isinstance(state, Mapping):
            if (state["metric"], state["mode"]) == (self.monitor.metric, self.monitor.mode):
                for value, env_steps, *updates in state["kept"][: self.monitor.keep]:  # once without updates
                    self._kept.append((float(value), env_steps, updates[0] if updates else None))
        elif state is not None and (self.monitor.metric, self.monitor.mode) == (Monitor.metric, Monitor.mode):
            self._kept = [(float(state), None, None)]

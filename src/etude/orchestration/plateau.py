"""Does something about a metric that no longer improves: an alert, or the end of the run."""

from __future__ import annotations

import math
from typing import Any, Literal

from etude.errors import UserError
from etude.orchestration.callbacks import Callback, Progress, Row


class Plateau(Callback):
    """Acts once a metric has not improved for `patience` of its values; `min_delta` is what counts as better.

    `action` is alert (tell, and clear it once it improves again) or stop (save and end the run).
    """

    def __init__(
        self,
        metric: str = "eval/return_mean",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: Literal["max", "min"] = "max",
        action: Literal["alert", "stop"] = "alert",
    ) -> None:
        for name, value, allowed in (("mode", mode, ("max", "min")), ("action", action, ("alert", "stop"))):
            if value not in allowed:
                raise UserError(f"callback plateau: {name}={value}: must be {' or '.join(allowed)}")
        if patience < 1 or min_delta < 0:
            raise UserError(f"callback plateau: patience={patience} must be at least 1, min_delta={min_delta} not negative")
        self.metric, self.patience, self.min_delta, self.action = metric, patience, min_delta, action
        self._sign = 1.0 if mode == "max" else -1.0
        self._best, self._waited = -math.inf, 0

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """Look at a row's value, if it has one."""
        value = row.get(self.metric)
        if value is None or not math.isfinite(value):
            return None
        if self._sign * value > self._best + self.min_delta:
            self._best, self._waited = self._sign * value, 0
            progress.clear_alert("plateau")
            return None
        self._waited += 1
        if self._waited < self.patience:
            return None
        told = f"{self.metric} has not improved on {self._sign * self._best:.4g} for {self._waited} of its values"
        if self.action == "stop":
            return told
        progress.send_alert("plateau", told, metric=self.metric, tip="a lower algorithm.learning_rate, or enough is learnt")
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a resume."""
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._best, self._waited = state["best"], state["waited"]

"""The metric that a phase waits for: a typo in its name would take the whole budget."""

from __future__ import annotations

from collections.abc import Mapping

from etude.config.phases import LIKELY_METRICS, PhaseSpec
from etude.errors import UserError, did_you_mean

ROWS_TO_WAIT = 3
"""Rows with metrics of the same kind after which one that a phase waits for and nobody has logged is a mistake."""
ROWS_OF_ANOTHER_KIND = 20
"""The same for a kind of metrics that is an algorithm's own, and may come late."""
_KINDS = ("train", "eval", "collect", "hp", "time", "system")


class AwaitedMetric:
    """Whether the metric that ends a phase has passed its bound, and whether it is logged at all."""

    def __init__(self) -> None:
        self.missed_rows = 0
        self.seen = False

    def is_met(self, phase: PhaseSpec, row: Mapping[str, float]) -> bool:
        """Take in a logged row; raise UserError where the metric is missing from row after row."""
        if phase.until is None:
            return False
        metric = phase.until.metric
        if metric in row or metric in LIKELY_METRICS:  # those come with the first episode or evaluation, however late
            self.seen = True
        if not self.seen:
            self._miss(phase.name, metric, row)
        return metric in row and phase.until.met(row[metric])

    def _miss(self, phase: str, metric: str, row: Mapping[str, float]) -> None:
        kind = metric.partition("/")[0]
        self.missed_rows += kind not in _KINDS or any(name.startswith(f"{kind}/") for name in row)
        if self.missed_rows >= (ROWS_TO_WAIT if kind in _KINDS else ROWS_OF_ANOTHER_KIND):
            alike = [name for name in row if name.startswith(f"{kind}/")] or [name for name in row if "/" in name]
            near = did_you_mean(metric, row) or f" (there are: {', '.join(alike)})"
            raise UserError(f"phase '{phase}' waits for until.metric={metric}, which is not logged{near}")

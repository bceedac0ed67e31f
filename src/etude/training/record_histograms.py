"""Histograms of weights and gradients now and then: a line of `logs/histograms.jsonl`, and TensorBoard's histograms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from etude.errors import EtudeError
from etude.files.regular import append_lines
from etude.orchestration.callbacks import Callback, Progress, Row
from etude.telemetry.histograms import Histogram, histogram
from etude.telemetry.sinks import SinkGroup
from etude.workflows.base import Workflow

FILE = "histograms.jsonl"


class RecordHistograms(Callback):
    """Looks at every parameter at rows that are due; it reads alone, so what is learnt stays as it is.

    Gradients are those of the last update, where they are kept: eager updates do, compiled and captured ones need not.
    """

    def __init__(
        self, workflow: Workflow, every_updates: int, logs: Path, sinks: SinkGroup, on_alert: Callable[[str], None]
    ) -> None:
        self._workflow, self._every, self._logs, self._sinks, self._on_alert = workflow, every_updates, logs, sinks, on_alert
        self._done = 0

    def on_start(self, progress: Progress) -> None:
        """Go on with the next of the grid."""
        self._done = progress.counters["updates"]

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """Record if it is time to."""
        updates = progress.counters["updates"]
        if self._every and updates // self._every > self._done // self._every:
            self._done = updates
            try:
                self._record(row)
            except (OSError, EtudeError) as error:
                self._every = 0
                self._on_alert(f"no more histograms from {updates:,} updates on: {error}")
        return None

    @torch.no_grad()
    def _record(self, row: Row) -> None:
        found: dict[str, Histogram] = {}
        for role, part in self._workflow.stateful_parts().items():
            if not isinstance(part, nn.Module) or role.startswith("_"):
                continue
            for name, parameter in part.named_parameters():
                if parameter.is_floating_point() and parameter.numel():
                    found[f"weights/{role}.{name}"] = histogram(parameter.detach().float().cpu().numpy())
                    if parameter.grad is not None:
                        found[f"gradients/{role}.{name}"] = histogram(parameter.grad.detach().float().cpu().numpy())
        at = {name: int(row[name]) for name in ("env_steps", "updates")}
        said = {name: each.as_dict() for name, each in found.items()}
        append_lines(self._logs / FILE, json.dumps({**at, "histograms": said}, separators=(",", ":")))
        self._sinks.write_histograms(row, found)

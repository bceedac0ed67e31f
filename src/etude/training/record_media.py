"""Asks a workflow for videos and pictures now and then, writes them into the run and shows them to its sinks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from etude.components.networks.modes import evaluating, mode_dependent
from etude.compute.random_streams import derive_seed
from etude.config.schema import Config
from etude.errors import EtudeError
from etude.orchestration.cadences import Cadence
from etude.orchestration.callbacks import Callback, Progress, Row
from etude.telemetry.media import write_media
from etude.telemetry.sinks import SinkGroup
from etude.workflows.base import Workflow


class MediaError(EtudeError):
    """Videos or pictures could not be made, for whatever reason."""


class RecordMedia(Callback):
    """Calls `Workflow.media` at rows that are due, with random numbers of their own; training can't notice.

    If something fails, that is one line, there is no more of it in this sitting, and the run goes on.
    """

    def __init__(
        self, workflow: Workflow, config: Config, folder: Path, sinks: SinkGroup, on_alert: Callable[[str], None]
    ) -> None:
        self._workflow, self._folder, self._sinks, self._on_alert = workflow, folder, sinks, on_alert
        self._seed, self._device = config.experiment.seed, torch.device(config.experiment.device)
        self._every = config.logging.media_every_steps
        self._cadence = Cadence(self._every)
        self._is_off = self._every == 0 or type(workflow).media is Workflow.media

    def on_start(self, progress: Progress) -> None:
        """Go on with the next of the grid."""
        self._cadence.done(progress.counters["env_steps"])

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """Record if it is time to."""
        steps = progress.counters["env_steps"]
        is_due = self._cadence.is_due(steps) if self._every else any(name.startswith("eval/") for name in row)
        if is_due and not self._is_off:
            self._cadence.done(steps)
            try:
                self._record(steps, progress.counters["updates"], row)
            except MediaError as error:
                self._is_off = True
                self._on_alert(f"no media from {steps:,} environment steps on: {error}")
        return None

    def _record(self, steps: int, updates: int, row: Row) -> None:
        try:
            media = self._made(steps, updates)
            if media:
                self._sinks.write_media(row, write_media(self._folder, steps, media))
        except Exception as error:
            # Encoders, disks and other people's pictures: none of them may end a training.
            said = str(error) if isinstance(error, EtudeError) else f"{type(error).__name__}: {error}"
            raise MediaError(said) from error

    def _made(self, steps: int, updates: int) -> dict[str, Tensor]:
        workflow = self._workflow
        generator = Generator(self._device)
        generator.manual_seed(derive_seed(self._seed, "media", steps, updates))
        switched = mode_dependent(*(part for part in workflow.stateful_parts().values() if isinstance(part, nn.Module)))
        with torch.no_grad(), evaluating(switched):
            return {name: pixels.cpu() for name, pixels in workflow.media(generator).items()}

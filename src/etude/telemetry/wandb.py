"""Metrics for Weights & Biases."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import UserError
from etude.telemetry.names import Row

if TYPE_CHECKING:
    from etude.telemetry.media import Media


class WandbSink:
    """Log every metric to a W&B run; without a connection it is kept in the run directory to upload later.

    A resumed run continues its own W&B run: rows are numbered from the run's first one on (`rows_before` came earlier),
    because an offline W&B run does not know what an earlier sitting logged. `axis` is the counter on the x-axis, `updates` for
    an offline run.
    """

    def __init__(
        self,
        project: str,
        entity: str | None,
        tags: Sequence[str],
        name: str,
        config: Mapping[str, Any],
        run_dir: Path,
        mode: Literal["online", "offline", "disabled"] = "online",
        axis: str = "env_steps",
        rows_before: int = 0,
        group: str | None = None,
    ) -> None:
        try:
            wandb = self._wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise UserError("logging.wandb=true needs the 'wandb' extra: pip install 'etude[wandb]'") from error
        settings: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "tags": list(tags),
            "group": group,
            "name": name,
            "config": dict(config),
            "dir": str(run_dir),
            "id": run_dir.name,
            "resume": "allow",
            # Its own capture of the terminal would fight with the live view; run.log has the text.
            "settings": {"console": "off"},
        }
        try:
            # The run that an agent of a sweep has begun is this one: another would be no part of the sweep.
            joined = wandb.run if os.environ.get("WANDB_SWEEP_ID") else None
            if joined is not None:
                joined.config.update(settings["config"], allow_val_change=True)
            self._run = joined if joined is not None else wandb.init(mode=mode, **settings)
        except Exception as error:
            if mode != "online":
                raise
            warnings.warn(
                f"W&B can't be reached ({error}); logging offline. Upload later with: wandb sync {run_dir}/wandb/offline-*",
                stacklevel=2,
            )
            self._run = wandb.init(mode="offline", **settings)
        self._rows = rows_before
        self._run.define_metric(axis)
        self._run.define_metric("*", step_metric=axis)

    def write(self, rows: Sequence[Row]) -> None:
        """Log each row as one W&B history entry."""
        for row in rows:
            self._run.log(dict(row), step=self._rows)
            self._rows += 1

    def write_media(self, row: Row, media: Media) -> None:
        """Add files to the row that was logged last."""
        shown = {
            f"media/{name}": (self._wandb.Video if medium.is_video else self._wandb.Image)(str(medium.path))
            for name, medium in media.items()
        }
        self._run.log(shown, step=max(0, self._rows - 1))

    def flush(self) -> None:
        """W&B sends from its own process; there is nothing to push."""

    def close(self) -> None:
        """Finish the W&B run."""
        self._run.finish()

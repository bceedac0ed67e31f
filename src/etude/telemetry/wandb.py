"""Metrics, media and artifacts for Weights & Biases."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import UserError
from etude.telemetry.names import COUNTERS, Row
from etude.telemetry.new_media import NewMedia

if TYPE_CHECKING:
    from etude.telemetry.histograms import Histograms
    from etude.telemetry.media import Media
    from etude.telemetry.results import Result

_KEPT = {"none": (), "policy": ("report", "policy"), "checkpoint": ("report", "policy", "checkpoint")}


class WandbSink:
    """Log every metric to a W&B run; without a connection it is kept in the run directory to upload later.

    A resumed run continues its own W&B run: rows are numbered from the run's first one on (`rows_before` came earlier),
    because an offline W&B run does not know what an earlier sitting logged. `axis` is the counter on the x-axis, `updates` for
    an offline run. Videos and pictures of the run are uploaded once each, when they are whole. `artifacts` is what is kept
    there when a sitting ends.
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
        artifacts: Literal["none", "policy", "checkpoint"] = "none",
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
        self._kept = _KEPT[artifacts]
        self._new = NewMedia(run_dir / "videos", run_dir / "logs" / "wandb-media.json")
        for counter in dict.fromkeys([axis, *COUNTERS]):
            # Hidden: an axis is no curve of its own.
            self._run.define_metric(counter, hidden=True)
        self._run.define_metric("*", step_metric=axis)

    def write(self, rows: Sequence[Row]) -> None:
        """Log each row as one W&B history entry, and the media that have appeared since."""
        for row in rows:
            self._run.log(dict(row), step=self._rows)
            self._rows += 1
        if rows:
            self._log_media([(_medium_name(path.stem), path) for path in self._new.take()])

    def write_media(self, row: Row, media: Media) -> None:
        """Add files to the row that was logged last."""
        # A row that waited in the queue may have found the file already.
        self._log_media([(name, medium.path) for name, medium in media.items() if self._new.is_new(medium.path)])

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Add histograms to the row that was logged last."""
        shown = {
            name: self._wandb.Histogram(np_histogram=(list(each.counts), list(each.edges))) for name, each in histograms.items()
        }
        self._run.log(shown, step=max(0, self._rows - 1))

    def write_results(self, results: Sequence[Result]) -> None:
        """Keep the report and the policies as artifacts: a version each time, `latest`, and `best` where it is."""
        for result in results:
            if result.kind not in self._kept:
                continue
            name = artifact_name(result.run_id, result.kind)
            artifact = self._wandb.Artifact(name, result.kind, metadata=dict(result.facts))
            for place, content in result.files.items():
                if isinstance(content, bytes):
                    with artifact.new_file(place, mode="wb") as file:
                        file.write(content)
                else:
                    artifact.add_file(str(content), name=place)
            self._run.log_artifact(artifact, aliases=["latest", *(["best"] if result.is_best else [])])

    def flush(self) -> None:
        """W&B sends from its own process; there is nothing to push."""

    def close(self) -> None:
        """Upload the media that came last, and finish the W&B run."""
        self._log_media([(_medium_name(path.stem), path) for path in self._new.take()])
        self._run.finish()

    def _log_media(self, files: Sequence[tuple[str, Path]]) -> None:
        if not files:
            return
        shown: dict[str, list[Any]] = {}
        for name, path in files:
            made = self._wandb.Image if path.suffix.lower() == ".png" else self._wandb.Video
            shown.setdefault(f"media/{name}", []).append(made(str(path)))
        # At the step of the last row, which gives them their place on the axis.
        logged = {name: made[0] if len(made) == 1 else made for name, made in shown.items()}
        self._run.log(logged, step=max(0, self._rows - 1))
        self._new.shown(path for _, path in files)


def artifact_name(run_id: str, kind: str) -> str:
    """Return what an artifact of a run is called there: letters that W&B allows, 128 at most."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', run_id)[: 127 - len(kind)]}-{kind}"


def _medium_name(stem: str) -> str:
    """Return the name under which files of one kind are shown: ``steps-0000002000-dream`` is the medium ``dream``."""
    return re.sub(r"^steps-\d+-?", "", stem) or "policy"

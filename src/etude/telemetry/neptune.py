"""Metrics, media and policies for Neptune: `logging.sinks: [{type: neptune, project: team/name}]`.

The example of a sink that is plugged in (docs/loggers.md): it uses nothing of Etude but `SinkRun`. The token is read by the
package itself from NEPTUNE_API_TOKEN, and is no setting: settings are stored and shown.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import UserError
from etude.telemetry.names import COUNTERS, Row
from etude.telemetry.plug_in import SinkRun

if TYPE_CHECKING:
    from etude.telemetry.media import Media
    from etude.telemetry.results import Result


class NeptuneSink:
    """Log every metric as a series of a Neptune run; a resumed run continues its own.

    `mode` offline keeps all in `.neptune/` of the current folder, for `neptune sync` later. `artifacts` is what of the run is
    uploaded when a sitting ends: its report and best policy, its last full checkpoint besides, or nothing.
    """

    def __init__(
        self,
        run: SinkRun,
        project: str | None = None,
        mode: Literal["async", "offline", "debug"] = "offline",
        artifacts: Literal["none", "policy", "checkpoint"] = "policy",
    ) -> None:
        neptune = importlib.import_module("neptune")
        self._file = importlib.import_module("neptune.types").File
        self._axis = run.axis
        self._kinds = {"none": (), "policy": ("report", "policy"), "checkpoint": ("report", "policy", "checkpoint")}[artifacts]
        self._run: Any = neptune.init_run(
            project=project or run.project,
            name=run.id,
            custom_run_id=run.id,
            tags=list(run.tags),
            mode=mode,
            # The run directory has all of these, and its own capture of the terminal would fight with the live view.
            capture_stdout=False,
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,
            source_files=[],
        )
        if run.group is not None:
            self._run["sys/group_tags"].add([run.group])
        self._run["config"] = importlib.import_module("neptune.utils").stringify_unsupported(dict(run.config))

    @classmethod
    def check(cls) -> None:
        """A missing package is said before a run exists."""
        if find_spec("neptune") is None:
            raise UserError("needs a package that is not installed: pip install neptune")

    def write(self, rows: Sequence[Row]) -> None:
        """Append one point to each series a row has a value for; Neptune has no place for NaN and infinity."""
        for row in rows:
            step = float(row[self._axis])
            for name, value in row.items():
                if math.isfinite(value) and name not in COUNTERS:
                    self._run[f"metrics/{name}"].append(float(value), step=step)

    def write_media(self, row: Row, media: Media) -> None:
        """Upload videos and pictures, by their own names."""
        for name, medium in media.items():
            self._run[f"media/{name}/{medium.path.stem}"].upload(str(medium.path))

    def write_results(self, results: Sequence[Result]) -> None:
        """Upload the report and the policies."""
        for result in results:
            if result.kind in self._kinds:
                self._upload(f"artifacts/{result.kind}", result.files)
                self._run[f"artifacts/{result.kind}/facts"] = {key: str(value) for key, value in result.facts.items()}

    def flush(self) -> None:
        """Neptune sends from its own thread; there is nothing to push."""

    def close(self) -> None:
        """Finish the Neptune run."""
        self._run.stop()

    def _upload(self, place: str, files: Mapping[str, Path | bytes]) -> None:
        for name, content in files.items():
            stem, _, ending = name.rpartition(".")
            value = (
                self._file.from_content(content, extension=ending) if isinstance(content, bytes) else self._file(str(content))
            )
            self._run[f"{place}/{stem or name}"].upload(value)

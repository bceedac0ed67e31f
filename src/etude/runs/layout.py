"""Where each thing lies in a run directory."""

from __future__ import annotations

from pathlib import Path


class RunLayout:
    """The paths inside the run directory `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def record_path(self) -> Path:
        """Who runs it and how it stands."""
        return self.path / "run.json"

    @property
    def config_path(self) -> Path:
        """What was asked."""
        return self.path / "config.yaml"

    @property
    def resolved_path(self) -> Path:
        """Every concrete value that came of it."""
        return self.path / "resolved.yaml"

    @property
    def metrics_path(self) -> Path:
        """Every metric row, appended."""
        return self.path / "metrics.jsonl"

    @property
    def csv_path(self) -> Path:
        """The metrics as a table, derived."""
        return self.path / "metrics.csv"

    @property
    def summary_path(self) -> Path:
        """The results in short."""
        return self.path / "summary.json"

    @property
    def log_path(self) -> Path:
        """What was said while it ran."""
        return self.path / "run.log"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        """The folder of other logs."""
        return self.path / "logs"

    @property
    def videos(self) -> Path:
        """The folder of videos."""
        return self.path / "videos"

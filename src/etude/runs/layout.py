"""Where each thing lies in a run directory."""

from __future__ import annotations

from pathlib import Path


class RunLayout:
    """The paths inside the run directory `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_path = path / "run.json"
        """Who runs it and how it stands."""
        self.config_path = path / "config.yaml"
        """What was asked."""
        self.resolved_path = path / "resolved.yaml"
        """Every concrete value that came of it."""
        self.metrics_path = path / "metrics.jsonl"
        """Every metric row, appended."""
        self.csv_path = path / "metrics.csv"
        """The metrics as a table, derived."""
        self.summary_path = path / "summary.json"
        """The results in short."""
        self.report_path = path / "report.md"
        """What it was and what came of it, in words; derived."""
        self.report_page_path = path / "report.html"
        """The same as a page, with curves; derived."""
        self.status_path = path / "run_status.json"
        """How it stands right now, for whoever polls it."""
        self.log_path = path / "run.log"
        """What was said while it ran."""
        self.checkpoints_path = path / "checkpoints"
        """The folder of checkpoints."""
        self.logs = path / "logs"
        """The folder of other logs."""
        self.videos = path / "videos"
        """The folder of videos."""

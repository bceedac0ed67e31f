"""The runs that one server shows, and the only way from a name in a request to a folder."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from etude.runs.index import Listing, RunIndex
from etude.ui.access import Access
from etude.ui.confined import is_plain_name
from etude.ui.metric_files import MetricFiles

_FRESH_S = 0.5


class Workspace:
    """What every route works on: `workspace_of(request)` has it."""

    def __init__(self, runs_dir: Path, access: Access) -> None:
        # Resolved once: the folder itself may be reached by a link of the user's, nothing in it may be one.
        self.root = Path(os.path.realpath(runs_dir))
        self.access = access
        self.metrics = MetricFiles()
        self._index = RunIndex(self.root)
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._looked = 0.0

    def runs(self) -> Listing:
        """Return every run as it stands now, or stood half a second ago: newest first."""
        with self._lock:  # a page of many charts asks many times at once
            if self._listing is None or time.monotonic() - self._looked > _FRESH_S:
                self._listing = self._index.read()
                self._looked = time.monotonic()
            return self._listing

    def changed(self) -> None:
        """Note that a run was changed from here, which the next look must show."""
        with self._lock:
            self._listing = None

    def run_directory(self, run_id: str) -> Path:
        """Return the folder of a run; 404 unless it is a real folder with a run.json directly in the runs directory."""
        if is_plain_name(run_id) and _is_run(self.root / run_id):
            return self.root / run_id
        raise HTTPException(404, "there is no such run")


def workspace_of(request: Request) -> Workspace:
    """Return the workspace of the app that a request came to."""
    return request.app.state.workspace


def _is_run(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode) and stat.S_ISREG(os.lstat(path / "run.json").st_mode)
    except (OSError, ValueError):
        return False

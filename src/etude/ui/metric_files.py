"""The metric files of all runs that somebody looks at: read a little at each request, and in the background from the start."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from etude.ui.metric_file import MetricFile

_MOST_MEMORY = 2**30
_LONGEST_S = 0.25
"""How long one request reads; a page draws what there is and asks again."""


class MetricFiles:
    """Metric files by the folders of their runs."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, MetricFile] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run_directory: Path) -> MetricFile:
        """Return a run's metric file, as far as it is read."""
        with self._lock:
            found = self._known.get(run_directory)
            if found is None:
                found = self._known[run_directory] = MetricFile(run_directory / "metrics.jsonl")
            self._known.move_to_end(run_directory)
            return found

    def read(self, files: Iterable[MetricFile], longest_s: float = _LONGEST_S) -> int:
        """Take in what is new, a piece of each in turn, and return how many are not read whole when the time is over."""
        deadline = time.monotonic() + longest_s
        waiting = list(files)
        while waiting and time.monotonic() < deadline:
            rest = []
            for number, file in enumerate(waiting):
                if time.monotonic() >= deadline:
                    rest += waiting[number:]
                    break
                if not file.read_on():
                    rest.append(file)
            waiting = rest
        self._make_room()
        return len(waiting)

    def read_in_background(self, run_directories: Iterable[Path]) -> threading.Thread:
        """Read files whole in a thread, those that are named first first, so that the first chart has them."""

        def read_all() -> None:
            for folder in run_directories:
                file = self.of(folder)
                while not file.read_on():
                    pass
                self._make_room()

        thread = threading.Thread(target=read_all, name="reads metrics", daemon=True)
        thread.start()
        return thread

    def _make_room(self) -> None:
        """Forget files that were not asked for longest, where all together are too large."""
        with self._lock:
            total = sum(file.size for file in self._known.values())
            while total > _MOST_MEMORY and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                total -= oldest.size

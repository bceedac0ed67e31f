"""run.log: everything a run printed, with times and without colours, there even after a crash."""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

# Colours and cursor moves (CSI), titles and links (OSC), and the two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class RunLog:
    """An append-only text file whose lines begin with the time; each is with the operating system at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Append one line; a full disk costs the line, never the run."""
        # Of a line that rewrote itself (a progress bar) only the final state is worth keeping.
        shown = _ANSI.sub("", text).rstrip("\r\n").rpartition("\r")[2]
        with self._lock:
            try:
                self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}".rstrip() + "\n")
            except (OSError, ValueError):
                return

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        self._file.close()


class _Tee:
    """Stands in for sys.stdout or sys.stderr: passes everything on and logs whole lines."""

    def __init__(self, stream: TextIO, log: RunLog) -> None:
        self.stream = stream
        self._log = log
        self._unfinished = ""

    def write(self, text: str) -> int:
        written = self.stream.write(text)
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            self._log.line(line)
        return written

    def finish_line(self) -> None:
        if self._unfinished:
            self._log.line(self._unfinished)
            self._unfinished = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def tee_to(path: Path) -> Iterator[RunLog]:
    """While active, also append what is printed to stdout and stderr, and an exception that passes, to `path`."""
    log = RunLog(path)
    stdout, stderr = sys.stdout, sys.stderr
    tees = _Tee(stdout, log), _Tee(stderr, log)
    sys.stdout, sys.stderr = (cast("TextIO", tee) for tee in tees)
    try:
        yield log
    except SystemExit:
        raise
    except BaseException:
        # Whoever catches it prints it after the streams are restored, or not at all.
        for line in traceback.format_exc().splitlines():
            log.line(line)
        raise
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        for tee in tees:
            tee.finish_line()
        log.close()


def real_stream(stream: TextIO) -> TextIO:
    """Return the stream behind any tee: where a drawing goes that must not be logged."""
    while isinstance(stream, _Tee):
        stream = stream.stream
    return stream

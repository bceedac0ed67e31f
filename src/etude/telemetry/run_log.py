"""run.log: everything a run printed, with times and without colours, there even after a crash."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from etude.errors import EtudeError
from etude.files.printable import printable
from etude.files.regular import open_descriptor, own_folder
from etude.telemetry.silence import SESSION_LOGS, is_silenced

# Colours and cursor moves (CSI), titles and links (OSC), and the two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class RunLog:
    """An append-only text file whose lines begin with the time; each is with the operating system at once.

    A disk that takes no line costs the line, never the run: `on_failure` is called once, and later lines are tried again.
    With $ETUDE_DISABLE_SESSION_LOGS there is no file at all.
    """

    def __init__(self, path: Path, on_failure: Callable[[str], None] | None = None) -> None:
        self.on_failure = on_failure
        self._path = path
        self._descriptor: int | None = None
        self._has_failed = self._is_closed = self._is_torn = False
        # Reentrant: a signal's handler prints while the line it interrupted may be on its way here.
        self._lock = threading.RLock()
        with self._lock:
            if is_silenced(SESSION_LOGS):
                self._is_closed = True
            else:
                self._try(self._open)

    def line(self, text: str) -> None:
        """Append one line."""
        # Of a line that rewrote itself (a progress bar) only the final state is worth keeping.
        shown = printable(_ANSI.sub("", text).rstrip("\r\n").rpartition("\r")[2])
        data = (f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}".rstrip() + "\n").encode(errors="backslashreplace")
        with self._lock:
            if not self._is_closed:
                self._try(lambda: self._append(data))

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        with self._lock:
            self._is_closed = True
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _open(self) -> None:
        own_folder(self._path.parent)
        self._descriptor = open_descriptor(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            self._open()
            assert self._descriptor is not None
        # What a full disk cut off is not glued to the next line.
        rest = memoryview(b"\n" + data if self._is_torn else data)
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_torn = len(rest) > 0

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                problem = f"run.log can't be written: {error.strerror or error}; the run goes on without these lines"
                (self.on_failure or _say)(problem)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, file=real_stream(sys.stderr))


class _Tee:
    """Stands in for sys.stdout or sys.stderr: passes everything on and logs whole lines."""

    def __init__(self, stream: TextIO, log: RunLog) -> None:
        self.stream = stream
        self._log = log
        self._unfinished = ""

    def write(self, text: str) -> int:
        # A terminal or a pipe that went away is no reason for a training to end.
        with contextlib.suppress(OSError):
            self.stream.write(text)
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            self._log.line(line)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()

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
    except BaseException as error:
        # Whoever catches it prints it after the streams are restored, or not at all. Errors of ours say all in their words.
        text = f"{error}\n{getattr(error, 'details', '')}" if isinstance(error, EtudeError) else traceback.format_exc()
        for line in text.splitlines():
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

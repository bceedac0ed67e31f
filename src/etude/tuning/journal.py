"""The memory of a search: one JSON object a line, only ever appended to, on the disk before anything follows from it."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.atomic import fsync_directory
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import open_descriptor, read_bytes

LARGEST = 2**30


class Journal:
    """Events of one search; a line that a crash cut off is no event.

    Every event is with the operating system when it is written, and so survives a kill; with `durable` a power cut too.
    Several processes may write to one: whoever writes holds it meanwhile, and first takes in what the others have added.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path, self._durable = path, durable
        self._file: io.FileIO | None = None
        self._seen = 0
        """Up to where this process knows the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.held() as events:
            self.events = events
        fsync_directory(path.parent)

    @contextmanager
    def held(self) -> Iterator[list[dict[str, Any]]]:
        """Hold the journal against other writers; yields the events that they have added since this process last looked."""
        if self._file is not None:
            yield []
            return
        with io.FileIO(open_descriptor(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+") as file:
            # A file system without locks: one writer at a time is then up to whoever starts them.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            added = self._added(file)
            self._file = file
            try:
                yield added
            finally:
                self._file = None

    def write(self, event: Mapping[str, Any]) -> None:
        """Append an event; whoever holds the journal."""
        assert self._file is not None
        data = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        self._file.write(data)
        self._seen += len(data)
        if self._durable:
            os.fsync(self._file.fileno())

    def _added(self, file: io.FileIO) -> list[dict[str, Any]]:
        size = os.fstat(file.fileno()).st_size
        if size == self._seen:
            return []
        if size > LARGEST:
            raise EtudeError(f"{self.path}: larger than any journal of a sweep")
        if size < self._seen:
            raise EtudeError(f"{self.path}: has become shorter; something else writes to it")
        data = os.pread(file.fileno(), size - self._seen, self._seen)
        whole = _whole(data)
        events = _events(data[:whole], self.path, is_first=self._seen == 0)
        if whole < len(data):
            file.truncate(self._seen + whole)  # what a crash left of a line
        self._seen += whole
        return events


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return every whole event of a journal; none where there is no such file."""
    try:
        data = read_bytes(path, LARGEST)
    except FileNotFoundError:
        return []
    return _events(data[: _whole(data)], path)


def _events(data: bytes, path: Path, *, is_first: bool = True) -> list[dict[str, Any]]:
    events = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            event = parse_json(line)
        except DocumentError:
            event = None
        if not isinstance(event, dict):
            where = f"line {number}" if is_first else "a new line"
            raise EtudeError(f"{path}: {where} is no event of a sweep; the file is damaged")
        events.append(event)
    return events


def _whole(data: bytes) -> int:
    """Where the last whole line ends."""
    return data.rfind(b"\n") + 1

"""The memory of a search: one JSON object a line, only ever appended to, on the disk before anything follows from it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
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
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path, self._durable = path, durable
        path.parent.mkdir(parents=True, exist_ok=True)
        self.events = read_events(path)
        with self._opened() as file:
            file.truncate(_whole(read_bytes(path, LARGEST)))
        fsync_directory(path.parent)

    def write(self, event: Mapping[str, Any]) -> None:
        """Append an event."""
        with self._opened() as file:
            file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
            if self._durable:
                os.fsync(file.fileno())

    def _opened(self) -> io.FileIO:
        return io.FileIO(open_descriptor(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a")


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return every whole event of a journal; none where there is no such file."""
    try:
        data = read_bytes(path, LARGEST)
    except FileNotFoundError:
        return []
    events = []
    for number, line in enumerate(data[: _whole(data)].splitlines(), start=1):
        try:
            event = parse_json(line)
        except DocumentError:
            event = None
        if not isinstance(event, dict):
            raise EtudeError(f"{path}: line {number} is no event of a sweep; the file is damaged")
        events.append(event)
    return events


def _whole(data: bytes) -> int:
    """Where the last whole line ends."""
    return data.rfind(b"\n") + 1

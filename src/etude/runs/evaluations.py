"""logs/evaluations.jsonl: what every evaluation on request has measured, so that results can be found later."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import read_bytes
from etude.runs.atomic import fsync_directory, standard_json

VERSION = 1
NAME = "evaluations.jsonl"
_LARGEST = 2**28
"""Every return of a million episodes, many times over."""


def append_evaluations(logs: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records, with the time and a version; they are on the disk before this returns."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    stamped = [{"version": VERSION, "created": created, **record} for record in records]
    text = "".join(json.dumps(standard_json(record), ensure_ascii=False) + "\n" for record in stamped)
    logs.mkdir(exist_ok=True)
    is_new = not (logs / NAME).exists()
    with (logs / NAME).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several may evaluate one run at the same time
        # After a power cut the last line can be half a one; ours begins on its own.
        file.write((b"" if _ends_at_a_line(logs / NAME) else b"\n") + text.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        fsync_directory(logs)


def read_evaluations(logs: Path) -> list[dict[str, Any]]:
    """Return every record, oldest first; lines that a power cut left incomplete are passed over."""
    try:
        lines = read_bytes(logs / NAME, _LARGEST).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise EtudeError(f"{logs / NAME}: {error.strerror or error}") from None
    found = []
    for line in lines:
        try:
            record = parse_json(line)
        except DocumentError:
            continue
        if isinstance(record, dict) and record.get("version") == VERSION:
            found.append(record)
    return found


def _ends_at_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"

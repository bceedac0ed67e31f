"""logs/evaluations.jsonl: what every evaluation on request has measured, so that results can be found later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.atomic import standard_json
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import append_lines, read_bytes

VERSION = 1
NAME = "evaluations.jsonl"
_LARGEST = 2**28
"""Every return of a million episodes, many times over."""


def append_evaluations(logs: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records, with the time and a version; they are on the disk before this returns."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    stamped = [{"version": VERSION, "created": created, **record} for record in records]
    append_lines(logs / NAME, *(json.dumps(standard_json(record), ensure_ascii=False) for record in stamped))


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

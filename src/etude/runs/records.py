"""The small JSON records of a run, run.json and summary.json. Each has a checksum of itself: damage is never believed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from etude.errors import UserError
from etude.files.atomic import standard_json, write_json_atomic
from etude.files.documents import DocumentError, read_json

_CHECKSUM = "checksum"


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Replace the record at `path`, on the disk before this returns; NaN and infinities become null."""
    content = _content(record)
    write_json_atomic(path, {**content, _CHECKSUM: _checksum(content)})


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the record in a file, None without the file; UserError when it is not what was written.

    A record without a checksum is taken as it is: earlier versions wrote none, and whoever edits one by hand removes it.
    """
    try:
        record = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DocumentError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path} is damaged: not a JSON object")
    checksum = record.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(record):
        raise UserError(
            f"{path} is damaged: its checksum differs. Restore it from a copy; if you changed it yourself, "
            f'remove its line "{_CHECKSUM}"'
        )
    return record


def _content(record: dict[str, Any]) -> dict[str, Any]:
    plain = standard_json({key: value for key, value in record.items() if key != _CHECKSUM})
    return json.loads(json.dumps(plain))  # as it will be read: tuples are lists, keys are text


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

"""run_status.json: how a run stands right now, for whoever polls it.

    {"version": 1, "state": "running", "phase": "train", "counters": {"env_steps": 40960, …}, "fraction": 0.41, "eta_s": 12.3,
     "steps_per_second": 5012.0, "metrics": {"eval/return_mean": 480.2, …}, "alerts": 0, "pid": 4711, "host": "…",
     "updated": "2026-11-18T12:00:00.123+00:00"}

Replaced as a whole about once a second, and not synced to the disk: after a power cut it may be old, and no resume reads it.
A process that dies leaves its last words; `read_status` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.atomic import standard_json, write_text_unsynced
from etude.files.documents import DocumentError, read_json
from etude.runs.process import is_alive, this_process

VERSION = 1
NAME = "run_status.json"
LIVING = ("running", "paused")
"""States that need a process."""
_LARGEST = 2**16


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Replace the status of a run that this process trains."""
    process = this_process()
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    whole = {"version": VERSION, **status, **process, "updated": now}
    write_text_unsynced(path, json.dumps(standard_json(whole)) + "\n")


def read_status(path: Path) -> dict[str, Any] | None:
    """Return the status in a file as it was written last, `crashed` if its process is gone; None without the file."""
    try:
        status = read_json(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DocumentError as error:
        raise EtudeError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise EtudeError(f"{path}: {error.strerror or error}") from None
    if not isinstance(status, dict) or status.get("version") != VERSION:
        raise EtudeError(f"{path}: is not a run's status")
    if status.get("state") in LIVING and not is_alive(status):
        status["state"] = "crashed"
    return status

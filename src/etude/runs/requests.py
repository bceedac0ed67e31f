"""What is asked of a run while it trains, as files in its folder `requests/`, and what came of it, in logs/events.jsonl.

    requests/                                    only the owner's; a file each, gone once it is answered
      1763460000000000000-9f3c….json             {"version": 1, "id": …, "action": "set", "words": […], "for": {"pid": …}}
    logs/events.jsonl                            {"version": 1, "time": …, "id": …, "action": "set", "done": true, "said": …,
                                                  "env_steps": …, …, "changes": ["algorithm.learning_rate: 0.0003 → 0.0001"]}

Whoever asks writes a file; the run looks at the folder's time now and then, and at its files only if that has moved. A request
names the process that it is for, so that one which came too late is never answered by the run's next sitting.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, UserError
from etude.files.atomic import standard_json, write_text_atomic
from etude.files.documents import DocumentError, parse_json
from etude.files.printable import printable
from etude.files.regular import append_lines, open_descriptor, own_folder, read_bytes
from etude.runs.run import Run

VERSION = 1
ACTIONS = ("save", "evaluate", "video", "pause", "continue", "stop", "set")
FOLDER = "requests"
EVENTS = "events.jsonl"
MOST_WAITING = 64
"""Requests that are looked at in one go; what is more waits for the next."""
MOST_WORDS = 32
LARGEST_REQUEST = 2**14
_LARGEST_EVENTS = 2**26
_SETTLED_S = 1.0
"""A folder whose time is younger than this may change again without its time moving."""
_OWNER = ("pid", "pid_started", "host")


@dataclass(frozen=True)
class Request:
    """Something that a run is asked to do."""

    id: str
    action: str
    words: tuple[str, ...] = ()
    """key=value settings, of `set`."""


def ask(run: Run, action: str, words: Sequence[str] = ()) -> Request:
    """Leave a request for the process that trains `run` now; UserError if none does."""
    if action not in ACTIONS:
        raise UserError(f"{printable(action)}: can't be asked of a run; {', '.join(ACTIONS)} can")
    if action == "set" and not words:
        raise UserError("set: which settings? such as algorithm.learning_rate=1e-4")
    if words and action != "set":
        raise UserError(f"{action}: takes no settings ({printable(words[0])}); `set` does")
    record, status = run.record, run.status
    if status != "running":
        raise UserError(f"run {run.id} is not running: it is {status}")
    request = Request(secrets.token_hex(8), action, tuple(words))
    asked = {"version": VERSION, "id": request.id, "action": action, "words": list(words)}
    text = json.dumps({**asked, "for": {name: record.get(name) for name in _OWNER}})
    if len(words) > MOST_WORDS or len(text) > LARGEST_REQUEST:
        raise UserError(f"{len(words)} settings in {len(text):,} bytes: too much at once; change fewer")
    try:
        folder = _own_requests(run)
        write_text_atomic(folder / f"{time.time_ns()}-{request.id}.json", text)
    except OSError as error:
        raise UserError(f"run {run.id} can't be asked: {error.filename}: {error.strerror or error}") from error
    return request


class Inbox:
    """The requests of a run that trains in this process. A look costs a `stat`, unless something has come."""

    def __init__(self, run: Run, owner: Mapping[str, object]) -> None:
        self._folder = _own_requests(run)
        self._owner = {name: owner.get(name) for name in _OWNER}
        self._seen: int | None = None

    def take(self) -> list[Request]:
        """Return what has come since the last look, oldest first; what is no request of the owner's is dropped."""
        try:
            moved = os.lstat(self._folder).st_mtime_ns
        except OSError:  # somebody has removed it, and may bring it back
            return []
        if moved == self._seen:
            return []
        names = sorted(name for name in os.listdir(self._folder) if name.endswith(".json") and name[0] != ".")
        found = [request for name in names[:MOST_WAITING] if (request := self._read(self._folder / name)) is not None]
        settled = time.time_ns() - moved > _SETTLED_S * 1e9 and not names
        self._seen = moved if settled else None
        return found

    def _read(self, path: Path) -> Request | None:
        try:
            descriptor = open_descriptor(path, os.O_RDONLY)
        except OSError:
            return None  # a link, a pipe or a folder: none of ours
        with open(descriptor, "rb") as file:
            entry = os.fstat(descriptor)
            is_own = entry.st_uid == os.geteuid() and not stat.S_IMODE(entry.st_mode) & 0o022
            text = file.read(LARGEST_REQUEST + 1) if is_own else b""
        path.unlink(missing_ok=True)
        try:
            return _checked(parse_json(text), self._owner) if 0 < len(text) <= LARGEST_REQUEST else None
        except DocumentError:
            return None


def _checked(data: Any, owner: Mapping[str, object]) -> Request | None:
    """The request in a file, if it is one, and for this process."""
    if not isinstance(data, dict) or data.get("version") != VERSION or data.get("for") != owner:
        return None
    identity, action, words = data.get("id"), data.get("action"), data.get("words")
    if not isinstance(identity, str) or len(identity) > 64 or not isinstance(action, str) or action not in ACTIONS:
        return None
    if not isinstance(words, list) or len(words) > MOST_WORDS or not all(isinstance(word, str) for word in words):
        return None
    return Request(identity, action, tuple(words))


def _own_requests(run: Run) -> Path:
    folder = run.path / FOLDER
    if not folder.exists():
        own_folder(folder).chmod(0o700)
    own_folder(folder)
    if os.lstat(folder).st_uid != os.geteuid():
        raise UserError(f"run {run.id} belongs to another user, who alone can ask it")
    return folder


def note_event(run: Run, action: str, *, done: bool, said: str, at: Mapping[str, int], **facts: object) -> None:
    """Append what came of something that was asked; on the disk before this returns."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    event = {"version": VERSION, "time": now, "action": action, "done": done, "said": said, **at, **facts}
    append_lines(run.logs / EVENTS, json.dumps(standard_json(event), ensure_ascii=False))


def read_events(run: Run) -> list[dict[str, Any]]:
    """Return what was asked of a run and came of it, oldest first; lines that are none are passed over."""
    try:
        lines = read_bytes(run.logs / EVENTS, _LARGEST_EVENTS).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise EtudeError(f"{run.logs / EVENTS}: {error.strerror or error}") from None
    found = []
    for line in lines:
        try:
            event = parse_json(line)
        except DocumentError:
            continue
        if isinstance(event, dict) and event.get("version") == VERSION:
            found.append(event)
    return found

"""A run's alerts on disk: `logs/alerts.jsonl`, one JSON object for each time that an alert was raised or cleared.

    {"id": "kl_high", "metric": "train/approx_kl", "message": "...", "tip": "...", "state": "raised",
     "env_steps": 40960, "updates": 640, "decisions": 40960, "time": "2026-01-31T12:00:00+00:00"}

Counters are those of the row that the alert was seen in. What an earlier attempt logged past the checkpoint that a run was
resumed from is moved to `logs/superseded_alerts.jsonl`, as its rows are, so the file tells the run's one story.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from etude.files.atomic import write_bytes_atomic
from etude.files.documents import DocumentError, parse_json
from etude.files.printable import one_line
from etude.files.regular import append_lines, read_bytes

NAME, SUPERSEDED = Path("logs", "alerts.jsonl"), Path("logs", "superseded_alerts.jsonl")
LARGEST = 2**24
"""Bytes: some fifty thousand lines, where a run with a hundred alerts is a strange one."""
LONGEST_TEXT = 1000
_COUNTERS = ("env_steps", "updates", "decisions")
_TEXTS = ("id", "metric", "message", "tip", "time")
_LARGEST_COUNT = 2**63


class Transition(TypedDict):
    """One line: an alert that began to hold, or no longer does."""

    id: str
    """What names the alert; the same for every time that it is raised."""
    metric: str
    """The metric that it is about; empty where it is about none."""
    message: str
    tip: str
    """What to try."""
    state: Literal["raised", "cleared"]
    env_steps: int
    updates: int
    decisions: int
    time: str
    """ISO 8601 with its time zone; empty in a file that says nothing readable there."""


def alerts_of(run_directory: Path | str) -> list[Transition]:
    """Return a run's alerts as its file has them, oldest first; none where there is no such file.

    The file may be a stranger's. Lines that are not alerts are left out, texts are cut and hold nothing that moves a terminal's
    cursor (HTML has to be escaped still), and a link or a file past all measure is a RefusedFileError, an EtudeError.
    """
    try:
        data = read_bytes(Path(run_directory) / NAME, LARGEST)
    except FileNotFoundError:
        return []
    return [found for line in data.splitlines() if (found := _decode(line)) is not None]


def active_in(transitions: list[Transition]) -> dict[str, Transition]:
    """Return the alerts that were raised and not cleared since, by id, in the order in which they were raised."""
    active: dict[str, Transition] = {}
    for transition in transitions:
        active.pop(transition["id"], None)
        if transition["state"] == "raised":
            active[transition["id"]] = transition
    return active


class AlertLog:
    """Appends transitions to a run's file; each is on the disk when `write` returns."""

    def __init__(self, run_directory: Path) -> None:
        self._path, self._superseded = run_directory / NAME, run_directory / SUPERSEDED

    def write(self, transition: Transition) -> None:
        """Append one line."""
        append_lines(self._path, _encode(transition))

    def go_on_from(self, counters: Mapping[str, int]) -> list[Transition]:
        """Move the lines past these counters to the superseded ones, and return those that stay."""
        known = alerts_of(self._path.parent.parent)
        kept = [line for line in known if all(line[name] <= counters.get(name, 0) for name in _COUNTERS)]
        if len(kept) != len(known):
            gone = [line for line in known if line not in kept]
            append_lines(self._superseded, *map(_encode, gone))
            write_bytes_atomic(self._path, "".join(f"{_encode(line)}\n" for line in kept).encode())
        return kept


def now() -> str:
    """Return the time as the file has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _encode(transition: Transition) -> str:
    return json.dumps(transition, separators=(",", ":"))


def _decode(line: bytes) -> Transition | None:
    try:
        found = parse_json(line, deepest=2)
    except DocumentError:
        return None
    if not isinstance(found, dict) or found.get("state") not in ("raised", "cleared"):
        return None
    texts = {name: _text(found.get(name)) for name in _TEXTS}
    counts = {name: _count(found.get(name)) for name in _COUNTERS}
    if not texts["id"] or None in counts.values():
        return None
    if not _is_time(texts["time"]):
        texts["time"] = ""
    return Transition(**texts, **counts, state=found["state"])  # type: ignore[typeddict-item] # checked just above


def _text(value: Any) -> str:
    return one_line(value, LONGEST_TEXT) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST_COUNT else None


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False

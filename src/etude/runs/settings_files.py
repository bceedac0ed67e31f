"""A run's settings on disk: resolved.yaml, its hash in run.json, and logs/changes.jsonl, where resumes note what they changed.

A change is written in an order that a kill can't tear: its line, with the hash of the settings to come; the settings; the
record. So the settings are always those of the record or of the last line, and a last line whose settings never came is void.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.atomic import write_bytes_atomic, write_text_atomic
from etude.files.documents import DocumentError, parse_json, parse_yaml
from etude.files.regular import LARGEST_TEXT, append_lines, read_bytes
from etude.runs.run import Run

HASH = "resolved_sha256"


def settings_hash(text: str | bytes) -> str:
    """Return the hash by which the record knows the settings file."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def read_settings(run: Run) -> dict[str, Any]:
    """Return what ``resolved.yaml`` says, as data; EtudeError when it is not what Etude wrote there."""
    path = run.resolved_path
    data = _read(path)
    expected = run.record.get(HASH)  # earlier versions noted none
    if expected is not None and settings_hash(data) not in (expected, _last_hash(run)):
        raise EtudeError(
            f"{path}: has changed since the run was made, or is damaged. Restore it from a copy; settings are changed by "
            f"`etude resume {run.id} key=value`"
        )
    try:
        settings = parse_yaml(data)
    except DocumentError as error:
        raise EtudeError(f"{path}: can't be read: {error}") from None
    if not isinstance(settings, dict):
        raise EtudeError(f"{path}: is not a config")
    return settings


def write_changed_settings(run: Run, resolved_yaml: str, *, at: Mapping[str, int], changes: Sequence[str]) -> None:
    """Note `changes`, made where the counters stand at `at`, and replace the settings."""
    _drop_void_line(run)
    digest = settings_hash(resolved_yaml)
    append_lines(_changes_path(run), json.dumps({**at, "changes": list(changes), HASH: digest}, ensure_ascii=False))
    write_text_atomic(run.resolved_path, resolved_yaml)
    run.update_status(**{HASH: digest})


def read_changes(run: Run) -> list[dict[str, Any]]:
    """Return what resumes have changed, oldest first, each with its counters."""
    entries = []
    for number, line in enumerate(_lines(run), start=1):
        try:
            entry = parse_json(line)
        except DocumentError as error:
            raise EtudeError(f"{_changes_path(run)}: line {number} is not a record of changed settings ({error})") from None
        entries.append(entry)
    return entries[:-1] if entries and _is_void(run, entries[-1]) else entries


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise EtudeError(f"{path}: can't be read: {error.strerror or error}") from None


def _changes_path(run: Run) -> Path:
    return run.logs / "changes.jsonl"


def _lines(run: Run) -> list[bytes]:
    try:
        return read_bytes(_changes_path(run), 16 * LARGEST_TEXT).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EtudeError(f"{_changes_path(run)}: can't be read: {error.strerror or error}") from None


def _last_hash(run: Run) -> str | None:
    lines = _lines(run)
    try:
        entry = parse_json(lines[-1]) if lines else None
    except DocumentError:
        return None
    return entry.get(HASH) if isinstance(entry, dict) else None


def _is_void(run: Run, entry: object) -> bool:
    """Whether a kill came between this line and the settings that it announces."""
    announced = entry.get(HASH) if isinstance(entry, dict) else None
    return announced is not None and announced != settings_hash(_read(run.resolved_path))


def _drop_void_line(run: Run) -> None:
    lines = _lines(run)
    if lines and len(read_changes(run)) < len(lines):
        write_bytes_atomic(_changes_path(run), b"".join(line + b"\n" for line in lines[:-1]))

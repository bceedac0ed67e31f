"""Segments on disk: files of rows that are written once and shared by all checkpoints that hold those rows.

    checkpoints/replay/<buffer>/000000012288-5f1c0e9a7b3d2468.safetensors     its first row, and the start of its hash

A file is complete and on the disk before a manifest names it, and is removed once no manifest does.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path

from etude.files.atomic import LEFTOVER_SUFFIX, fsync_directory
from etude.files.segments import Segment, StoredSegment
from etude.runs.manifest import FileRecord
from etude.runs.tensor_file import write_tensors

FOLDER = "replay"
_FILE = re.compile(r"\d{12,}-[0-9a-f]{16}\.safetensors")


def write_segments(checkpoints: Path, entries: Sequence[tuple[Segment, list[object]]]) -> dict[str, FileRecord]:
    """Write the segments that have no file yet, fsynced, and enter all paths; returns what a manifest says of the files."""
    sizes: dict[str, dict[str, int]] = {}
    changed: set[Path] = set()
    used = {}
    for segment, entry in entries:
        relative = f"{FOLDER}/{_plain(segment.owner)}"
        if relative not in sizes:
            sizes[relative] = {e.name: e.stat(follow_symlinks=False).st_size for e in _entries(checkpoints / relative)}
        stored = segment.stored
        if stored is None or sizes[relative].get(stored.path.removeprefix(f"{relative}/")) != stored.size:
            stored = _write(checkpoints, relative, segment, changed)
            segment.mark_stored(stored)
        used[stored.path] = FileRecord(stored.sha256, stored.size)
        entry[0] = stored.path
    for folder in sorted(changed):
        fsync_directory(folder)
    return used


def _write(checkpoints: Path, relative: str, segment: Segment, changed: set[Path]) -> StoredSegment:
    folder = checkpoints / relative
    for new in (folder.parent, folder):
        if not new.exists():
            new.mkdir()
            changed.add(new.parent)
    temporary = folder / f".{segment.first}.{secrets.token_hex(6)}{LEFTOVER_SUFFIX}"
    try:
        sha256, size = write_tensors(temporary, segment.load())
        name = f"{segment.first:012d}-{sha256[:16]}.safetensors"
        os.replace(temporary, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    changed.add(folder)
    return StoredSegment(f"{relative}/{name}", sha256, size)


def remove_unused(checkpoints: Path, used: Collection[str]) -> None:
    """Remove the segments that no checkpoint refers to, and what a killed save left half-written."""
    root = checkpoints / FOLDER
    for folder in _entries(root):
        for entry in _entries(Path(folder.path)):
            is_leftover = entry.name.startswith(".") and entry.name.endswith(LEFTOVER_SUFFIX)
            is_unused = _FILE.fullmatch(entry.name) and f"{FOLDER}/{folder.name}/{entry.name}" not in used
            if is_leftover or is_unused:
                # The save has succeeded; what can't be deleted now is tried again at the next one.
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        if folder.is_symlink():
            return []
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _plain(owner: str) -> str:
    """A buffer's name as a folder's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", owner) or "_"

"""What a run keeps of its code: read with suspicion, because the run may be a stranger's.

Nothing here executes anything, follows a link or leaves the folder it is given.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from etude.errors import EtudeError
from etude.runs.source_state import MAX_FILE, MAX_FILES, MAX_PATCH, MAX_TOTAL

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MAX_NOTE = 2**20
_MOST_NAMED = 5
_EXECUTABLE, _PLAIN = 0o755, 0o644


@dataclass(frozen=True)
class StoredCode:
    """The commit a run was made from, and what differed from it."""

    run_id: str
    commit: str | None
    folder: str
    """Where in the repository the run was started, relative to its top."""
    patch: Path | None
    untracked: Path | None
    losses: tuple[str, ...]
    """What was not kept, one line each: without it the code may not be all there was."""


def read_stored_code(run_directory: Path) -> StoredCode | None:
    """Return what ``provenance/`` says about a run's code; None for a run that was made outside a git repository."""
    provenance = run_directory / "provenance"
    note = _read_note(provenance / "git.json")
    if note is None:
        return None
    commit = note.get("commit")
    if commit is not None and not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
        raise EtudeError(f"{provenance / 'git.json'}: {str(commit)[:80]!r} is not a commit")
    patch = provenance / "changes.patch" if note.get("patch") is not None else None
    if patch is not None:
        _require_plain_file(patch, MAX_PATCH)
    untracked = provenance / "untracked"
    return StoredCode(
        run_id=run_directory.name,
        commit=commit,
        folder=_folder(note.get("folder")),
        patch=patch,
        untracked=untracked if os.path.lexists(untracked) else None,
        losses=tuple(_losses(note)),
    )


def copy_untracked(source: Path, target: Path) -> int:
    """Copy the untracked files of a run into the restored tree at `target`; returns how many there were."""
    copied = total = 0
    for file, relative in _plain_files(source):
        size = file.stat().st_size
        total += size
        copied += 1
        if size > MAX_FILE or total > MAX_TOTAL or copied > MAX_FILES:
            raise EtudeError(f"{source}: holds more than Etude ever stores there; it is not restored")
        place = _make_room(target, relative, file)
        mode = _EXECUTABLE if file.stat().st_mode & stat.S_IXUSR else _PLAIN
        # O_EXCL never follows a link and never overwrites.
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as copy:
            copy.write(file.read_bytes())
    return copied


def is_inside(relative: str) -> bool:
    """Whether a relative path stays inside its folder and out of any ``.git``, on file systems that fold names too."""
    parts = PurePosixPath(relative).parts
    plain = bool(parts) and not relative.startswith("/") and "\\" not in relative and "\0" not in relative
    return plain and ".." not in parts and not any(_is_git(part) for part in parts)


def _is_git(name: str) -> bool:
    # HFS+ ignores some characters, NTFS has short names and drops trailing dots and spaces: git's own list of traps.
    folded = re.sub("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]", "", name).lower().split(":")[0].rstrip(". ")
    return folded == ".git" or re.fullmatch(r"git~\d+", folded) is not None


def _plain_files(source: Path) -> Iterator[tuple[Path, str]]:
    """Every file below `source`, with its path inside; anything that is not a plain file or folder is refused."""
    if source.is_symlink() or not source.is_dir():
        raise EtudeError(f"{source}: is not a folder; the run's untracked files are not restored")
    pending = [source]
    while pending:
        for entry in sorted(os.scandir(pending.pop()), key=lambda entry: entry.name):
            path, relative = Path(entry.path), Path(entry.path).relative_to(source).as_posix()
            if not is_inside(relative):
                raise EtudeError(f"{path}: a file of this name is never restored")
            if entry.is_symlink() or not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)):
                raise EtudeError(f"{path}: is not a plain file; Etude stores no links, so this run was changed by someone")
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path, relative


def _make_room(target: Path, relative: str, file: Path) -> Path:
    """Return where a file goes, having made its folders; a link on the way there (the patch may add one) is refused."""
    *folders, name = relative.split("/")
    place = target
    for folder in folders:
        place = place / folder
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise EtudeError(f"{file}: would be written through {place.relative_to(target)}, which is a link or a file")
        place.mkdir(exist_ok=True)
    if os.path.lexists(place / name):
        raise EtudeError(f"{file}: would overwrite a file of the commit")
    return place / name


def _read_note(path: Path) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        raise EtudeError(f"{path}: is missing, so nobody knows what code made this run")
    _require_plain_file(path, _MAX_NOTE)
    try:
        note = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise EtudeError(f"{path}: can't be read: {str(error)[:120]}") from None
    if note is not None and not isinstance(note, dict):
        raise EtudeError(f"{path}: is not a record of git")
    return note


def _require_plain_file(path: Path, limit: int) -> None:
    try:
        status = path.lstat()
    except OSError as error:
        raise EtudeError(f"{path}: {error.strerror}; the code can't be restored exactly") from None
    if not stat.S_ISREG(status.st_mode):
        raise EtudeError(f"{path}: is not a plain file, and is never followed")
    if status.st_size > limit:
        raise EtudeError(f"{path}: {status.st_size} bytes, more than the {limit} that Etude stores")


def _folder(noted: object) -> str:
    return noted if isinstance(noted, str) and is_inside(noted) else "."


def _losses(note: dict[str, Any]) -> Iterator[str]:
    if note.get("error"):
        yield f"git could not be asked when the run was made: {str(note['error'])[:200]}"
    problems = note.get("problems")
    for problem in problems if isinstance(problems, list) else []:
        yield f"when the run was made: {str(problem)[:200]}"
    left_out = note.get("left_out")
    entries = [entry for entry in left_out if isinstance(entry, dict)] if isinstance(left_out, list) else []
    if entries:
        count = note.get("left_out_count")
        count = count if isinstance(count, int) else len(entries)
        named = [f"{str(entry.get('path'))[:120]} ({str(entry.get('reason'))[:80]})" for entry in entries[:_MOST_NAMED]]
        more = f" and {count - len(named)} more" if count > len(named) else ""
        what = "1 untracked file was" if count == 1 else f"{count} untracked files were"
        yield f"{what} not kept with the run: {', '.join(named)}{more}"

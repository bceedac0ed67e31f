"""Writing so that a crash, a full disk or a power cut leaves either the old file or the new one, never half."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

# What a crash can leave behind: hidden files with this ending, safe to delete.
LEFTOVER_SUFFIX = ".tmp"
_LONGEST_NAME = 255


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace the file at `path` with `data`, on the disk before this returns."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the place of a new file, to be written and fsynced within; afterwards it stands at `path`, or nothing changed."""
    # Not tempfile: its 0600 would hide the run from the colleagues that the umask lets in.
    temporary = _beside(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        _forget(temporary)
        raise
    fsync_directory(path.parent)


def write_text_atomic(path: Path, text: str) -> None:
    """Replace the file at `path` with `text` in UTF-8, on the disk before this returns."""
    write_bytes_atomic(path, text.encode())


def write_text_unsynced(path: Path, text: str) -> None:
    """Replace the file at `path` without waiting for the disk: readers see the old or the new one, a power cut may lose it."""
    temporary = _beside(path)
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        _forget(temporary)
        raise


def write_json_atomic(path: Path, value: object) -> None:
    """Replace the file at `path` with `value` as indented JSON; NaN and infinities become null."""
    write_text_atomic(path, json.dumps(standard_json(value), indent=2) + "\n")


def fsync_directory(directory: Path) -> None:
    """Make renames and new names in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems have no fsync for folders; they order renames themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def replace_link(link: Path, target_name: str) -> None:
    """Point `link` at its neighbour `target_name` in one step; a text file where links are not supported."""
    temporary = _beside(link)
    try:
        os.symlink(target_name, temporary)
    except (OSError, NotImplementedError):
        write_text_atomic(link, target_name + "\n")
        return
    try:
        os.replace(temporary, link)
    except BaseException:
        _forget(temporary)
        raise
    fsync_directory(link.parent)


def read_link(link: Path) -> str | None:
    """Return the neighbour's name that `link` points at, or None when there is no such link."""
    try:
        if link.is_symlink():
            name = os.readlink(link)
        elif link.is_file():
            with open(link, "rb") as file:
                name = file.read(_LONGEST_NAME + 2).decode().strip()
        else:
            return None
    except (OSError, UnicodeDecodeError):
        return None
    # A link that leads out of its folder is not one of ours.
    is_plain = name not in ("", ".", "..") and len(name) <= _LONGEST_NAME and not set(name) & set("/\\\0\n")
    return name if is_plain else None


def remove_leftovers(directory: Path, *names: str) -> None:
    """Remove what writers of `names` that were killed left in `directory`; only for whoever alone may write them now."""
    if directory.is_symlink():  # what lies there is somebody else's
        return
    for name in names:
        for path in directory.glob(f".{name}*{LEFTOVER_SUFFIX}"):
            _forget(path)


def _forget(temporary: Path) -> None:
    # The error that brought us here says what is wrong with the disk.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}{LEFTOVER_SUFFIX}")


def standard_json(value: object) -> object:
    """Return a value as JSON knows it: NaN and infinities become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: standard_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [standard_json(item) for item in value]
    return value

"""Opens regular files, and nothing else: no link is followed, no pipe or device is waited for, no more is read than a limit.

A run directory can come from a stranger. A link in it may point at any file of the user's, which writing would change; a FIFO
blocks whoever opens it; `/dev/zero` never ends. All three are errors here, as is a folder that is really a link.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from etude.errors import EtudeError

LARGEST_TEXT = 2**20
"""Far more than any config or record has."""
_A_LINK = "is a link, which is never followed here; put what it points to in its place"
_NOT_REGULAR = "not a regular file"
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class RefusedFileError(EtudeError, OSError):
    """What stands in a file's place is not a file that Etude opens; an OSError whose message is already the line to show."""

    def __init__(self, number: int, path: Path, reason: str) -> None:
        super().__init__(number, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_descriptor(path: Path, flags: int) -> int:
    """Open a regular file that is no link and return its descriptor; anything else is a RefusedFileError that says so."""
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o666)
    except OSError as error:
        # What opening a link, or a FIFO that nobody reads, is answered with differs between systems.
        raise (_refusal(path) or error) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refusal(path) or RefusedFileError(errno.EINVAL, path, _NOT_REGULAR)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return what a regular file holds; one of more than `most` bytes is refused."""
    with open(open_descriptor(path, os.O_RDONLY), "rb") as file:
        # Its size first: a read of at most N bytes would ask for memory for all N.
        data = file.read() if os.fstat(file.fileno()).st_size <= most else None
    if data is None or len(data) > most:
        raise RefusedFileError(errno.EOVERFLOW, path, f"larger than the {most:,} bytes allowed")
    return data


def read_own_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return what a file of the user's own holds, wherever links to it lead; else as `read_bytes`."""
    return read_bytes(Path(os.path.realpath(path)), most)


def append_lines(path: Path, *lines: str) -> None:
    """Append lines that are on the disk before this returns; what a power cut left of an earlier one stays apart from them.

    Several processes may append to one file at the same time.
    """
    own_folder(path.parent)
    text = "".join(f"{line}\n" for line in lines)
    with open(open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
        torn = bool(size) and file.read(1) != b"\n"
        file.seek(0, os.SEEK_END)
        file.write(b"\n" * torn + text.encode(errors="backslashreplace"))
        file.flush()
        os.fsync(file.fileno())
    if not size:
        _sync_folder(path.parent)


def own_folder(path: Path) -> Path:
    """Return the folder, made if it isn't there; a link in its place is refused."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if not path.is_symlink():
            raise RefusedFileError(errno.ENOTDIR, path, "is a file, not a folder") from None
    if path.is_symlink():
        raise RefusedFileError(errno.ELOOP, path, _A_LINK)
    return path


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(path: Path) -> RefusedFileError | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return RefusedFileError(errno.ELOOP, path, _A_LINK)
    if stat.S_ISDIR(mode):
        return RefusedFileError(errno.EISDIR, path, "is a folder, not a file")
    return None if stat.S_ISREG(mode) else RefusedFileError(errno.EINVAL, path, _NOT_REGULAR)

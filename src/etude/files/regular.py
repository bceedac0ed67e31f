"""Opens regular files, and nothing else: no link is followed, no pipe or device is waited for, no more is read than a limit.

A run directory can come from a stranger. A link in it may point at any file of the user's, which writing would change; a FIFO
blocks whoever opens it; `/dev/zero` never ends. All three are errors here, as is a folder that is really a link.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_TEXT = 2**20
"""Far more than any config or record has."""
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def open_descriptor(path: Path, flags: int) -> int:
    """Open a regular file that is no link and return its descriptor; what else stands there is an OSError that says so."""
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o666)
    except OSError as error:
        # What opening a link, or a FIFO that nobody reads, is answered with differs between systems.
        raise _refusal(path) or error from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refusal(path) or OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return what a regular file holds; one of more than `most` bytes is an OSError."""
    with open(open_descriptor(path, os.O_RDONLY), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than the {most:,} bytes allowed", str(path))
    return data


def own_folder(path: Path) -> Path:
    """Return the folder, made if it isn't there; a link in its place is an OSError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if not path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path)) from None
    if path.is_symlink():
        raise OSError(errno.ELOOP, _A_LINK, str(path))
    return path


_A_LINK = "is a link, which is never followed here; put the real one in its place"
_NOT_REGULAR = "not a regular file"


def _refusal(path: Path) -> OSError | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return OSError(errno.ELOOP, _A_LINK, str(path))
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    return None if stat.S_ISREG(mode) else OSError(errno.EINVAL, _NOT_REGULAR, str(path))

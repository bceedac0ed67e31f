"""The hash of a file, remembered as long as the file on the disk stays the same one."""

from __future__ import annotations

import hashlib
import os
import time
from functools import lru_cache

_MOST_REMEMBERED = 4096
_SETTLED_NS = 10**9
"""Clocks of file systems tick a hundred times a second or once: of two changes in one tick, only the first shows."""


def file_digest(path: str | os.PathLike[str]) -> bytes:
    """Return the SHA-256 of a file; what has long been written is read again only when it was written or replaced since."""
    status = os.stat(path)
    # The time of the last change can't be set back, as that of the last writing can.
    marks = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    read = _read_once if time.time_ns() - status.st_ctime_ns > _SETTLED_NS else _read
    return read(os.fspath(path), *marks)


def _read(path: str, *_: int) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


_read_once = lru_cache(_MOST_REMEMBERED)(_read)

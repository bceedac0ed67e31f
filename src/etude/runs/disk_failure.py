"""A disk that is full, read-only or broken, in words: what failed, and what the user can do about it."""

from __future__ import annotations

import errno

_WAYS_OUT = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "allow larger files",
    errno.EROFS: "make it writable again",
    errno.EIO: "see to the disk",
    errno.ESTALE: "mount it again",
}


def disk_way_out(error: BaseException) -> str | None:
    """Return what to do about a disk that can't be written, such as ``make room``; None when the error is of another kind."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return _WAYS_OUT.get(cause.errno or 0) if isinstance(cause, OSError) else None


def in_words(error: OSError) -> str:
    """Return ``path: No space left on device``, or as much of it as the error knows."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason

"""One process at a time: a file lock that the system releases when its owner dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from etude.errors import UserError
from etude.files.regular import open_descriptor

_LONGEST_WAIT_S = 5.0
_PAUSE_S = 0.002


@contextlib.contextmanager
def exclusive_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path`; UserError naming the owner's pid when another process has it."""
    try:
        # Never truncated by opening and never deleted: both would race with the owner.
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"{what} can't be locked: {path}: {error.strerror}") from error
    with open(descriptor, "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read(32).decode(errors="replace").strip() or "unknown"
            raise UserError(f"{what} is in use by process {owner}; wait for it to end, or stop it") from None
        except OSError as error:
            raise UserError(f"{what} can't be locked: {path}: {error.strerror}") from error
        # The lock is had; the pid in the file is for the message above, and a full disk has no room for it.
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.truncate(0)


def is_held(path: Path) -> bool:
    """Whether some process, here or on another machine that shares the file system, holds the lock at `path`."""
    try:
        descriptor = open_descriptor(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def brief_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path` for a read and a write, waiting for whoever has it.

    Where it can't be had (no locks on this file system, an owner that was stopped in the middle) it goes on without: a
    training must not fail or hang for the sake of a note in its record.
    """
    try:
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(descriptor)

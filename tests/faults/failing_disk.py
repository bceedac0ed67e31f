"""A disk that fails when and where it is told to: permission bits would not stop root, so the calls themselves fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO")}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Call:
    """A call that changes the disk: what it does, and to which path below the root."""

    operation: str
    path: str


@dataclass
class FailingDisk:
    """Counts the calls that change what lies below `root`, and lets those fail that `fails` picks (number, call)."""

    root: Path
    fails: Callable[[int, Call], bool] = lambda number, call: False
    code: int = errno.ENOSPC
    calls: list[Call] = field(default_factory=list)
    failed: list[Call] = field(default_factory=list)

    def meets(self, operation: str, place: Any) -> bool:
        """Note a call; True when it must fail."""
        path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.path.abspath(place)
        # Not the last step: a link that is replaced is itself what changes.
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        root = os.path.realpath(self.root)
        if path != root and not path.startswith(root + os.sep):
            return False
        call = Call(operation, os.path.relpath(path, root))
        self.calls.append(call)
        if not self.fails(len(self.calls) - 1, call):
            return False
        self.failed.append(call)
        return True

    def error(self, place: Any = None) -> OSError:
        return OSError(self.code, os.strerror(self.code), *([] if place is None or isinstance(place, int) else [str(place)]))


class _File(io.FileIO):
    """A file whose writes can fail, half of them done, as on a disk that fills up."""

    disk: FailingDisk
    place: str

    def write(self, data: Any, /) -> int:
        if self.disk.meets("write", self.place):
            if len(data) > 1 and self.disk.code in (errno.ENOSPC, errno.EDQUOT):
                super().write(bytes(data)[: len(data) // 2])
            raise self.disk.error()
        return super().write(data)


@contextmanager
def failing(disk: FailingDisk) -> Iterator[FailingDisk]:
    """Within, the disk fails as told. Syncing does nothing else: it would only take time."""
    real_open = builtins.open

    def open_file(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return real_open(file, mode, buffering, *rest, **named)
        is_open = isinstance(file, int)  # by `os.open`, which has been asked
        if not is_open and disk.meets("open", file):
            raise disk.error(file)
        raw = _File(file, mode.replace("b", "").replace("t", ""), closefd=named.pop("closefd", True))
        raw.disk, raw.place = disk, os.readlink(f"/proc/self/fd/{file}") if is_open else os.fspath(file)
        if "b" in mode and buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)  # type: ignore[type-var]
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, line_buffering=buffering == 1, **named)

    def guarded(name: str, which: int = 0, *, real: bool = True) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            changes = name != "open" or bool(arguments[1] & _WRITING)
            if changes and disk.meets(name, arguments[which]):
                raise disk.error(arguments[which])
            return original(*arguments, **named) if real else None

        return call

    patched = {name: guarded(name) for name in ("open", "write", "mkdir")}
    patched |= {name: guarded(name, 1) for name in ("rename", "replace", "symlink")}
    patched["fsync"] = guarded("fsync", real=False)
    originals = {name: getattr(os, name) for name in patched}
    try:
        builtins.open = io.open = open_file  # type: ignore[assignment]
        for name, function in patched.items():
            setattr(os, name, function)
        yield disk
    finally:
        builtins.open = io.open = real_open
        for name, function in originals.items():
            setattr(os, name, function)

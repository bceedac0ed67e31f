"""Moments of a run, counted: each call that changes the disk, and each call of Etude's own code.

A profile function sees both without anything being patched, so that whatever Etude calls tomorrow is seen too. A process that
is killed before its n-th call dies at the same place however busy the machine is.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import etude

_PACKAGE = str(Path(etude.__file__).parent) + os.sep
_NAMES = {"replace", "rename", "symlink", "link", "unlink", "remove", "mkdir", "rmdir", "fsync", "truncate", "ftruncate"}
_METHODS = {"write", "truncate", "flush"}
_FILES = (io.FileIO, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_FRAMES = 3


@dataclass(frozen=True)
class Moment:
    """The n-th call of its kind: `disk` for what changes the disk, `code` for Etude's functions, those of the file `of`."""

    kind: str
    number: int
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{f' of {self.of}' if self.of else ''} {self.number}"


@dataclass
class Watch:
    """Counts the calls and remembers where the disk was changed; dies at the given moment."""

    death: Moment | None = None
    before_dying: Callable[[str], object] = lambda place: None
    places: list[str] = field(default_factory=list)
    """Where each call that changes the disk comes from."""
    calls: int = 0
    within: dict[str, int] = field(default_factory=dict)
    """How many of the calls were of each of Etude's files."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take note of a call, as `sys.setprofile` asks."""
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls += 1
            file = os.path.basename(frame.f_code.co_filename)
            self.within[file] = self.within.get(file, 0) + 1
            count = self.within[file] if self.death is not None and self.death.of == file else self.calls
            if self.death is not None and self.death.kind == "code" and self.death.of in ("", file):
                self._die_at(count, f"{file} {frame.f_code.co_name}")
        elif event == "c_call" and _changes_the_disk(argument):
            place = _place(frame, argument.__name__)
            if place is not None:
                if self.death is not None and self.death.kind == "disk":
                    self._die_at(len(self.places), place)
                self.places.append(place)

    def _die_at(self, number: int, place: str) -> None:
        assert self.death is not None
        if number == self.death.number:
            sys.setprofile(None)
            self.before_dying(place)
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Within, calls are counted."""
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(None)


def _changes_the_disk(function: Any) -> bool:
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if isinstance(owner, _FILES):
        return name in _METHODS and not owner.closed and owner.fileno() > 2
    return name in _NAMES and getattr(owner, "__name__", None) == "posix"


def _place(frame: FrameType | None, name: str) -> str | None:
    """The files of Etude that led to a call, innermost first, with function and line; None if Etude has no part in it."""
    lines: dict[str, str] = {}
    while frame is not None and len(lines) < _FRAMES:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE):
            file = os.path.basename(code.co_filename)
            lines.setdefault(file, f"{file}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return f"{name} in {' < '.join(lines.values())}" if lines else None

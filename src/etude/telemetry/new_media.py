"""Which videos and pictures of a run have not been shown yet: each once, over all of its sittings.

Writers of media give a file its name when it is whole, so what has a name is closed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from etude.files.atomic import write_text_atomic
from etude.files.documents import DocumentError, read_json

ENDINGS = (".mp4", ".gif", ".png")
_MOST_NAMES = 100_000


class NewMedia:
    """The files of a folder, less those that `shown` was called with; what was shown is remembered in a file."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self._folder, self._memory = folder, memory
        self._shown = self._remembered()
        self._stamp: int | None = None

    def take(self) -> list[Path]:
        """Return the regular files that are new, in the order of their names; links and hidden files are none."""
        try:
            stamp = os.stat(self._folder, follow_symlinks=False).st_mtime_ns
            if stamp == self._stamp:
                return []  # no name was added since: a look at a folder of thousands is saved
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if _is_medium(entry)]
        except OSError:
            return []
        self._stamp = stamp
        return [self._folder / name for name in sorted(names) if name not in self._shown]

    def is_new(self, path: Path) -> bool:
        """Whether a file has not been shown."""
        return path.parent != self._folder or path.name not in self._shown

    def shown(self, paths: Iterable[Path]) -> None:
        """Remember these: they are not returned again, also after a resume."""
        names = {path.name for path in paths if path.parent == self._folder} - self._shown
        if names:
            self._shown |= names
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(self._memory, json.dumps(sorted(self._shown)))

    def _remembered(self) -> set[str]:
        try:
            found = read_json(self._memory)
        except (OSError, DocumentError):
            return set()
        return {name for name in found[:_MOST_NAMES] if isinstance(name, str)} if isinstance(found, list) else set()


def _is_medium(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or not entry.name.lower().endswith(ENDINGS):
        return False
    return stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)

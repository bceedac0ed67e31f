"""Every run of a runs directory, found quickly. The directories are the truth; the index beside them is only a cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from etude.errors import UserError
from etude.runs.conditions import Condition
from etude.runs.index_file import FILE_NAME, IndexFile
from etude.runs.indexed_run import IndexedRun
from etude.runs.run_query import Query
from etude.runs.run_reader import Entry, read_entry

__all__ = ["FILE_NAME", "IndexedRun", "Listing", "RunIndex", "find_runs"]

# What an entry is made of. Files are replaced or appended to, never changed in place, so their looks give a change away.
_WATCHED = ("run.json", "summary.json", "metrics.jsonl")
# File times move in ticks of some milliseconds: what changed just now may change again without looking different.
_TICK_NS = 50_000_000


class Listing(NamedTuple):
    """The runs of a directory, newest first, and what looked like a run and could not be read whole."""

    runs: list[IndexedRun]
    problems: list[str]


class RunIndex:
    """The runs under `root`, always as fresh as their directories; only what changed since the last look is read again.

    Any number of processes may use it at once. Where the file can't be used (a read-only folder, a file system without
    locks), everything is read from the directories: slower, and the same.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._file = IndexFile(root)

    def read(self) -> Listing:
        """Look at every directory and return what is there now."""
        # The file before the folder: what is in the file and no longer in the folder is then truly gone.
        return self._refresh(self._file.load())

    def rebuild(self) -> Listing:
        """Forget the file and read every directory again."""
        self._file.delete()
        return self._refresh({})

    def _refresh(self, known: dict[str, Entry]) -> Listing:
        entries: list[Entry] = []
        changed: list[Entry] = []
        for path, stamp in _run_folders(self.root):
            entry = known.pop(path.name, None)
            if entry is None or entry.stamp != stamp:
                entry = read_entry(path, _settled(stamp))
                changed.append(entry)
            entries.append(entry)
        if changed or known:
            self._file.save(changed, known)
        runs = [run for entry in entries if (run := entry.now()) is not None]
        runs.sort(key=lambda run: (run.created or "", run.id), reverse=True)
        return Listing(runs, [problem for entry in entries for problem in entry.problems])


def find_runs(
    root: Path | str,
    *conditions: str,
    sort: str | None = None,
    reverse: bool = False,
    limit: int | None = None,
    **equal: object,
) -> list[IndexedRun]:
    """Return the runs under `root` that meet every condition, as ``etude runs list --filter`` finds them.

    A condition is text such as ``"eval/return_mean>400"``, or a keyword: ``algorithm="ppo"``. Newest first, unless `sort`
    names a column, a metric (highest first) or a setting.
    """
    by_name = [Condition.equal(key, value) for key, value in equal.items()]
    return Query([*conditions, *by_name], sort=sort, reverse=reverse, limit=limit).apply(RunIndex(Path(root)).read().runs)


def _run_folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Every folder with a run.json, and what its files look like."""
    try:
        with os.scandir(root) as found:
            # Links (@last) would list a run twice.
            names = [item.name for item in found if not item.name.startswith(".") and item.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise UserError(f"runs directory {root}: {error.strerror or error}") from error
    for name in names:
        stamp = _stamp(os.path.join(root, name))
        if stamp is not None:
            yield root / name, stamp


def _stamp(folder: str) -> str | None:
    looks = []
    for name in _WATCHED:
        try:
            status = os.stat(os.path.join(folder, name))
        except OSError:
            if not looks:
                return None
            looks.append("-")
        else:
            looks.append(f"{status.st_mtime_ns}.{status.st_size}.{status.st_ino}")
    return " ".join(looks)


def _settled(stamp: str) -> str:
    """Return the stamp, or nothing when a file changed so recently that the next change could look the same."""
    now = time.time_ns()
    times = [int(look.partition(".")[0]) for look in stamp.split() if look != "-"]
    return "" if any(abs(now - moment) < _TICK_NS for moment in times) else stamp

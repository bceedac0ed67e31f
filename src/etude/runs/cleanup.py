"""Make room: remove the checkpoints and videos of runs that nobody needs, and keep what says how they were made."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from etude.errors import EtudeError, UserError
from etude.runs.indexed_run import IndexedRun
from etude.runs.run import Run
from etude.runs.run_keys import RunKeys, value_of
from etude.runs.run_query import sort_runs

_DAY_S = 86400
_DOOMED = ".deleting-"


@dataclass(frozen=True)
class Verdict:
    """What is to happen to one run."""

    run: IndexedRun
    kept_because: str | None
    """Why it stays as it is; None when it is to be cleaned up."""
    size: int = 0
    """Bytes that cleaning it up would free."""


def plan_cleanup(
    runs: Sequence[IndexedRun],
    *,
    keep_best: int = 0,
    keep_recent_days: float = 0,
    metric: str = "best",
    whole: bool = False,
) -> list[Verdict]:
    """Judge every run; nothing is touched.

    Kept are runs with tags, runs that are running, the `keep_best` best of each environment by `metric`, and those that
    trained within `keep_recent_days`. `whole` is for the whole directory instead of checkpoints and videos.
    """
    for name, value in (("keep-best", keep_best), ("keep-recent", keep_recent_days)):
        if not value >= 0:
            raise UserError(f"--{name} {value}: must be at least 0")
    best = _best_of_each_environment(runs, keep_best, metric)

    def kept_because(run: IndexedRun) -> str | None:
        if run.tags:
            return "tagged"
        if run.status == "running":
            return "running"
        if run.id in best:
            return "best"
        if time.time() - _last_active(run) < keep_recent_days * _DAY_S:
            return "recent"
        return None

    return [_verdict(run, kept_because(run), whole) for run in runs]


def clean_up(run_id: str, root: Path, *, whole: bool = False) -> int:
    """Clean one run up and return the bytes freed; UserError when it is in use or has been tagged or started meanwhile."""
    run = Run.open(root / run_id)
    size = _freed(run.path, whole)
    with run.lock():
        # The plan may be hours old, and the index is only a cache: what counts is what the run says now.
        if run.status == "running":
            raise UserError(f"run {run.id} is running")
        if run.record.get("tags"):
            raise UserError(f"run {run.id} is tagged")
        if whole:
            _remove(run.path)
            return size
        # Noted first: should this be cut short, the run does not claim to have what it lost.
        run.update_status(cleaned={"at": datetime.now(UTC).isoformat(timespec="seconds"), "bytes": size})
        for folder in _removable(run.path):
            _remove(folder)
            folder.mkdir()
        remove_leftovers(run.path)
    return size


def remove_leftovers(folder: Path) -> None:
    """Finish removals that were cut short in a runs directory or a run."""
    for path in folder.glob(f"{_DOOMED}*"):
        shutil.rmtree(path, ignore_errors=True)


def _verdict(run: IndexedRun, kept_because: str | None, whole: bool) -> Verdict:
    if kept_because is not None:
        return Verdict(run, kept_because)
    if not os.access(run.path, os.W_OK):
        return Verdict(run, "read-only")
    if _is_locked(run.path):
        return Verdict(run, "in use")
    size = _freed(run.path, whole)
    return Verdict(run, None if size or whole else "nothing to remove", size)


def _best_of_each_environment(runs: Sequence[IndexedRun], count: int, metric: str) -> set[str]:
    key = RunKeys(runs).resolve(metric)
    by_environment: dict[str | None, list[IndexedRun]] = defaultdict(list)
    for run in runs:
        value = value_of(run, key)
        # A run without a result is nobody's best.
        if isinstance(value, int | float) and value == value:
            by_environment[run.environment].append(run)
    return {run.id for group in by_environment.values() for run in sort_runs(group, key)[:count]}


def _last_active(run: IndexedRun) -> float:
    """When it trained last. Not by run.json, which changes with every tag."""
    times = [run.created_at.timestamp()] if run.created_at else []
    for name in ("summary.json", "metrics.jsonl"):
        try:
            times.append(os.stat(run.path / name).st_mtime)
        except OSError:
            continue
    return max(times, default=time.time())


def _is_locked(path: Path) -> bool:
    try:
        with Run(path).lock():
            return False
    except UserError:
        return True


def _removable(run_directory: Path) -> list[Path]:
    # A link leads to somebody's own place for large files; what lies there is theirs to delete.
    folders = [run_directory / name for name in ("checkpoints", "videos")]
    return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]


def _freed(run_directory: Path, whole: bool) -> int:
    parts = [*_removable(run_directory), *run_directory.glob(f"{_DOOMED}*")]
    return sum(size_of(folder) for folder in ([run_directory] if whole else parts))


def size_of(folder: Path) -> int:
    """Return the bytes of all files under a folder, links not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            if not os.path.islink(os.path.join(place, name)):
                total += status.st_size
    return total


def _remove(folder: Path) -> None:
    # Renamed first: a removal that is cut short leaves a hidden folder, never half a checkpoint or half a run.
    doomed = folder.with_name(f"{_DOOMED}{folder.name}")
    try:
        if doomed.exists():
            shutil.rmtree(doomed)
        os.rename(folder, doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise EtudeError(f"{folder} could not be removed: {error.filename or doomed}: {error.strerror or error}") from error

"""Everything that a report says of a run, read from its directory with suspicion and within limits.

What is missing or damaged is left out, and said in `problems`: a report of an old or a broken run is still a report.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from etude.errors import EtudeError, UserError
from etude.files.documents import DocumentError
from etude.files.regular import read_bytes
from etude.runs.checkpoint_selection import CheckpointOutline, outline_checkpoints
from etude.runs.evaluations import read_evaluations
from etude.runs.indexed_run import IndexedRun
from etude.runs.records import read_record
from etude.runs.run import Run
from etude.runs.run_reader import read_entry, read_flat_config
from etude.telemetry.alert_log import Transition, alerts_of
from etude.telemetry.sampled_rows import Sample, sampled_rows

VIDEOS, PICTURES = (".mp4", ".webm"), (".png", ".gif", ".jpg", ".jpeg")
_LARGEST_CONFIG = 2**18
_MOST_FILES = 10_000

Found = TypeVar("Found")


@dataclass(frozen=True)
class Material:
    """A run as it lies on the disk."""

    run: Run
    facts: IndexedRun
    summary: Mapping[str, Any]
    stop_reason: str | None
    sample: Sample
    asked: Mapping[str, Any]
    """What the user and the presets set, by full names; everything else is at its default."""
    config_text: str
    evaluations: Sequence[Mapping[str, Any]]
    checkpoints: Sequence[CheckpointOutline]
    alerts: Sequence[Transition]
    media: Sequence[Path]
    """Regular files in ``videos/``, newest last."""
    command: Sequence[str]
    git: Mapping[str, Any]
    machine: Mapping[str, Any]
    problems: Sequence[str]

    @cached_property
    def threshold(self) -> float | None:
        """The mean return at which the task counts as solved."""
        keys = ("training.return_threshold", "environment.spec.return_threshold")
        found = next((value for key in keys if (value := self.facts.config.get(key)) is not None), None)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def read_material(path: Path) -> Material:
    """Read the run directory at `path`; one without a readable ``run.json`` is a UserError."""
    run, entry = Run(path), read_entry(path, "")
    facts = entry.now()
    if facts is None:
        raise UserError(entry.problems[0] if entry.problems else f"{path}: not a run directory (no run.json)")
    problems = list(entry.problems)

    def tried(what: str, read: Callable[[], Found], otherwise: Found) -> Found:
        try:
            return read()
        except (EtudeError, DocumentError, OSError) as error:
            problems.append(f"{what} is left out: {error}")
            return otherwise

    record = run.record
    is_over = facts.status not in ("running", "crashed")
    reason = record.get("stop_reason") if is_over else None
    provenance = path / "provenance"
    command = _object(provenance / "command.json").get("argv")
    return Material(
        run,
        facts,
        summary=tried("summary.json", lambda: run.summary, {}),
        stop_reason=reason if isinstance(reason, str) else None,
        sample=tried("metrics.jsonl", lambda: sampled_rows(run.metrics_path), Sample([], True)),
        asked=read_flat_config(run.config_path, problems),
        config_text=tried("resolved.yaml", lambda: _config_text(run.resolved_path), ""),
        evaluations=tried("logs/evaluations.jsonl", lambda: read_evaluations(run.logs), []),
        checkpoints=tried("checkpoints/", lambda: outline_checkpoints(run.checkpoints_path), []),
        alerts=tried("logs/alerts.jsonl", lambda: alerts_of(path), []),
        media=tried("videos/", lambda: _media(run.videos), []),
        command=[str(word) for word in command] if isinstance(command, list) else [],
        git=_object(provenance / "git.json"),
        machine=_object(provenance / "environment.json"),
        problems=problems,
    )


def _config_text(path: Path) -> str:
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return ""
    text = data[:_LARGEST_CONFIG].decode("utf-8", "replace")
    return text if len(data) <= _LARGEST_CONFIG else f"{text}\n# … {len(data) - _LARGEST_CONFIG:,} more bytes"


def _media(folder: Path) -> list[Path]:
    """Files that a browser shows; links, pipes and what is still being written are none."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = []
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_FILES), entries, strict=False):
            shown = not entry.name.startswith(".") and entry.name.lower().endswith(VIDEOS + PICTURES)
            if shown and stat.S_ISREG((state := entry.stat(follow_symlinks=False)).st_mode):
                found.append((state.st_mtime_ns, entry.name))
    return [folder / name for _, name in sorted(found)]


def _object(path: Path) -> dict[str, Any]:
    try:
        return read_record(path) or {}
    except (UserError, OSError):
        return {}  # null: not made in a repository; and where a run came from is worth no failure

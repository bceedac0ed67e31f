"""A run as a comparison reads it: its facts, its metric rows, and the code and packages it ran with."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.comparison.curves import Curve, curve
from etude.errors import EtudeError, UserError
from etude.runs.indexed_run import IndexedRun
from etude.runs.records import read_record
from etude.runs.run_reader import read_entry
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import COUNTERS, Row

# What a run is called and which seed it has; and what it writes when, which changes nothing that is learned.
NAMES = ("experiment.name", "experiment.project", "experiment.group", "experiment.tags", "experiment.seed")
_REASONS = ("_resolved.why",)
"""Sentences about settings that stand beside them."""
_NO_PART_OF_A_SETUP = ("logging.", "checkpoint.", "_resolved.", "version")


@dataclass(frozen=True)
class Member:
    """One run in a comparison."""

    facts: IndexedRun
    rows: Sequence[Row]
    dirty: bool | None = None
    """Whether the code differed from its commit; None where that isn't known."""
    packages: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What could not be read, one line each."""
    _curves: dict[tuple[str, str], Curve] = field(default_factory=dict, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.facts.id

    @property
    def environment(self) -> str:
        """The environment's id."""
        return self.facts.environment or "?"

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.facts.algorithm or "?"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting but its names and its seed; a schedule is one value."""
        return _with_whole_schedules({key: value for key, value in self.facts.config.items() if key not in NAMES + _REASONS})

    @cached_property
    def setup(self) -> str:
        """Equal for runs that differ in nothing but the seed and what they write when.

        Not the hash in ``run.json``: a setting that a newer Etude has, and that is not set, would change that one.
        """
        telling = {
            key: value for key, value in self.settings.items() if value is not None and not key.startswith(_NO_PART_OF_A_SETUP)
        }
        if not telling:
            return self.facts.setup_hash or self.id
        return hashlib.sha256(json.dumps(telling, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @cached_property
    def metrics(self) -> frozenset[str]:
        """The names of every metric in its rows."""
        return frozenset(name for row in self.rows for name in row if name not in COUNTERS)

    def curve(self, metric: str, axis: str) -> Curve:
        """Return a metric over an axis."""
        if (metric, axis) not in self._curves:
            self._curves[metric, axis] = curve(self.rows, metric, axis)
        return self._curves[metric, axis]


def read_member(path: Path, reader: Callable[[Path], Sequence[Row]] | None = read_rows) -> Member:
    """Read the run directory at `path`; what is missing or damaged beside ``run.json`` is said in `problems`.

    `reader` reads its metrics, which takes a while where they are many; None leaves them out.
    """
    entry = read_entry(path, "")
    facts = entry.now()
    if facts is None:
        raise UserError(entry.problems[0] if entry.problems else f"{path}: not a run directory (no run.json)")
    problems = list(entry.problems)
    provenance = path / "provenance"
    return Member(
        facts,
        rows=() if reader is None else _rows(path / "metrics.jsonl", facts.id, problems, reader),
        dirty=_object(provenance / "git.json").get("dirty"),
        packages=_packages(_object(provenance / "environment.json")),
        problems=tuple(problems),
    )


def _rows(path: Path, run_id: str, problems: list[str], reader: Callable[[Path], Sequence[Row]]) -> Sequence[Row]:
    if not path.exists():
        problems.append(f"{run_id} has no metrics yet")
        return []
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            rows = reader(path)
    except (EtudeError, OSError) as error:
        problems.append(f"{run_id}: its metrics are left out: {error}")
        return []
    problems.extend(str(warning.message) for warning in said)
    if not rows:
        problems.append(f"{run_id} has no metrics yet")
    return rows


def _object(path: Path) -> dict[str, Any]:
    if path.parent.is_symlink():  # a stranger's folder may lead anywhere
        return {}
    try:
        return read_record(path) or {}
    except UserError:
        return {}  # where the code came from is worth a note, never a failure


def _packages(environment: Mapping[str, Any]) -> dict[str, str]:
    packages = environment.get("packages")
    found = {str(name): str(version) for name, version in packages.items()} if isinstance(packages, dict) else {}
    python = str(environment.get("python") or "").split()
    return {**({"python": python[0]} if python else {}), **found}


def _with_whole_schedules(settings: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, value in settings.items():
        parent, _, last = key.rpartition(".")
        parts = [settings.get(f"{parent}.{part}") for part in ("start", "end", "start_at", "end_at")]
        if last in ("start", "end", "start_at", "end_at") and all(isinstance(part, int | float) for part in parts):
            start, end, first, until = parts
            where = "" if (first, until) == (0, 1) else f" from {first:g} to {until:g}"
            whole[parent] = f"{start:g} → {end:g}{where}"
        else:
            whole[key] = value
    return whole

"""From a run directory to one row of the index."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, UserError
from etude.runs.indexed_run import MONITOR, IndexedRun
from etude.runs.last_metrics import last_metrics
from etude.runs.process import is_alive
from etude.runs.records import read_record
from etude.runs.run import Run

_OWNER = ("pid", "pid_started", "host")


@dataclass(frozen=True)
class Entry:
    """A folder of the runs directory as the index knows it: a run, or why it could not be read as one."""

    folder: str
    stamp: str
    """What its files looked like when they were read; empty when they should be read again in any case."""
    run: IndexedRun | None
    owner: Mapping[str, object] = field(default_factory=dict)
    """The process that wrote it last."""
    problems: tuple[str, ...] = ()

    def now(self) -> IndexedRun | None:
        """The run as it stands this moment: whether its process lives can't be remembered, only looked up."""
        if self.run is not None and self.run.status == "running" and not is_alive(self.owner):
            return replace(self.run, status="crashed")
        return self.run


def read_entry(path: Path, stamp: str) -> Entry:
    """Read the run directory at `path`; what is damaged in it is left out and said in `problems`."""
    run = Run(path)
    try:
        record = run.record
    except UserError as error:
        return Entry(path.name, stamp, None, problems=(str(error),))
    problems: list[str] = []
    summary = _json(run.summary_path, problems)
    config = _settings(run, problems)
    rows = last_metrics(run.metrics_path)
    # The summary is written with every save, and rows between saves: all of one moment comes from whichever is the newer.
    counters = _object(summary.get("counters"))
    if _progress(rows) > _progress(counters):
        counters = rows
    values = {**_object(summary.get("last_evaluation")), **rows}
    metrics = {name: value for name, value in values.items() if "/" in name and _number(value) is not None}
    best = _best(summary, rows if counters is rows else {}, config)
    tags = record.get("tags")
    cleaned = _object(record.get("cleaned"))
    indexed = IndexedRun(
        id=run.id,
        path=path,
        name=_text(record.get("name")),
        group=_text(record.get("group")),
        tags=tuple(tag for each in tags if (tag := _text(each))) if isinstance(tags, list) else (),
        environment=_text(record.get("environment")),
        algorithm=_text(record.get("algorithm")),
        seed=_whole(config.get("experiment.seed", record.get("seed"))),
        status=_text(str(record.get("status"))) or "",
        created=_text(record.get("created")),
        env_steps=_whole(counters.get("env_steps")),
        updates=_whole(counters.get("updates")),
        episodes=_whole(counters.get("episodes")),
        # A resume may have raised the budget; the resolved config is what counts now.
        total_steps=_whole(config.get("training.total_steps", record.get("total_steps"))),
        elapsed_s=max(metrics.get("time/elapsed_s", 0.0), _finite(summary.get("elapsed_s")) or 0.0) or None,
        best=_finite(best.get("value")),
        best_metric=_text(best.get("metric")),
        best_mode="min" if best.get("mode") == "min" else "max",
        best_step=_whole(best.get("env_steps")),
        metrics=metrics,
        config=config,
        config_hash=_text(summary.get("config_hash")) or _text(record.get("config_hash")),
        setup_hash=_text(summary.get("setup_hash")) or _text(record.get("setup_hash")),
        commit=_commit(path),
        cleaned=_text(cleaned.get("at")),
    )
    return Entry(run.id, stamp, indexed, {key: record.get(key) for key in _OWNER}, tuple(problems))


def _progress(counters: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(_finite(counters.get(name)) or 0.0 for name in ("env_steps", "updates", "cycles"))


def _best(summary: Mapping[str, Any], newer_rows: Mapping[str, float], config: Mapping[str, Any]) -> dict[str, Any]:
    """What the best evaluation was: an improvement is saved at once, so only a row that was logged just now knows better."""
    best = _object(summary.get("best"))
    metric = best.get("metric") or config.get("checkpoint.monitor") or MONITOR
    mode = best.get("mode") or config.get("checkpoint.monitor_mode") or "max"
    value = newer_rows.get(f"{str(metric).removesuffix('_mean')}_best", best.get("value"))
    return {
        "metric": metric,
        "mode": mode,
        "value": value,
        "env_steps": best.get("env_steps") if value == best.get("value") else None,
    }


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_record(path) or {}
    except UserError as error:
        problems.append(str(error))
        return {}


def _commit(run_directory: Path) -> str | None:
    if (run_directory / "provenance").is_symlink():  # a stranger's folder may lead anywhere
        return None
    try:
        git = read_record(run_directory / "provenance" / "git.json")
    except UserError:  # null: not made in a repository
        return None
    return _text((git or {}).get("commit"))


def _settings(run: Run, problems: list[str]) -> dict[str, Any]:
    """The settings that the run trains with, by their full names; none if they are not those that its record knows."""
    from etude.runs.settings_files import read_settings

    if not os.path.lexists(run.resolved_path):
        return {}
    try:
        data = read_settings(run)
    except EtudeError as error:
        problems.append(str(error))
        return {}
    flat: dict[str, Any] = {}
    _flatten(data, "", flat)
    return flat


def read_flat_config(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return the settings of a YAML file by their full names; what is wrong with it is added to `problems`."""
    from etude.files.documents import DocumentError, read_yaml  # here: most listings find every run in the index

    try:
        data = read_yaml(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except DocumentError as error:
        problems.append(f"{path} is damaged: {error}")
        return {}
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return {}
    flat: dict[str, Any] = {}
    _flatten(data if isinstance(data, dict) else {}, "", flat)
    return flat


def _flatten(data: dict[Any, Any], prefix: str, flat: dict[str, Any]) -> None:
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            _flatten(value, f"{name}.", flat)
        else:
            flat[name] = _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    # JSON can say half a character, which no database and no terminal takes.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finite(value: object) -> float | None:
    number = _number(value)
    # As a float: SQLite holds no whole number beyond 64 bits.
    return float(number) if number is not None and math.isfinite(number) else None


def _whole(value: object) -> int | None:
    number = _finite(value)
    # Beyond 64 bits no real count lies.
    return int(number) if number is not None and abs(number) < 2**63 else None

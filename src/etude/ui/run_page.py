"""Everything that the page of one run shows, read from its folder; what can't be read is said among its problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from etude.errors import EtudeError, UserError
from etude.files.documents import DocumentError, read_json
from etude.runs.checkpoint_selection import outline_checkpoints
from etude.runs.evaluations import read_evaluations
from etude.runs.indexed_run import IndexedRun
from etude.runs.places import command
from etude.runs.run import Run
from etude.runs.run_reader import read_entry, read_flat_config
from etude.runs.settings_files import read_changes
from etude.telemetry.alert_log import active_in, alerts_of
from etude.ui.confined import files_below
from etude.ui.run_files import REPORT, kind_of
from etude.ui.run_table import table

_FOLDERS = ("checkpoints", "logs", "provenance", "videos")
_EACH_EPISODE = ("version", "returns", "raw_returns", "lengths")
_MOST = 300
_LONGEST_TEXT = 2000
_DEEPEST = 6


def run_page(run: Run) -> dict[str, Any]:
    """Return what the page of a run shows."""
    entry = read_entry(run.path, stamp="")
    facts = entry.now()
    if facts is None:
        raise HTTPException(400, entry.problems[0] if entry.problems else "the run can't be read")
    problems = list(entry.problems)
    links = {name for name in _FOLDERS if (run.path / name).is_symlink()}
    problems += [f"{name} is a link, which is never followed" for name in sorted(links)]

    def reading(folder: str, read: Callable[[], Any]) -> Any:
        if folder in links:
            return []
        try:
            return read()
        except (EtudeError, OSError) as error:
            problems.append(str(error))
            return []

    alerts = reading("logs", lambda: alerts_of(run.path))
    record = run.record
    files = {name for name, _ in files_below(run.path)}
    page = {
        **table([facts], [facts], ())[0],
        "path": str(run.path),
        "stop_reason": None if facts.status in ("running", "crashed") else record.get("stop_reason"),
        "host": record.get("host"),
        "pid": record.get("pid"),
        "config_hash": facts.config_hash,
        "setup_hash": facts.setup_hash,
        "best_mode": facts.best_mode,
        "metrics": facts.metrics,
        "shares": _shares(facts),
        "config": facts.config,
        "asked": read_flat_config(run.config_path, problems),
        "summary": reading("", lambda: run.summary),
        "alerts": alerts[-_MOST:],
        "active_alerts": list(active_in(alerts)),
        "checkpoints": reading("checkpoints", lambda: _checkpoints(run)),
        "why_no_checkpoints": run.why_no_checkpoints,
        "evaluations": reading("logs", lambda: _evaluations(run)),
        "changes": reading("logs", lambda: read_changes(run))[-_MOST:],
        "media": _media(run.path),
        "report": REPORT in files,
        "log": run.log_path.name in files,
        "provenance": {
            name: paper
            for name in ("git", "environment", "command")
            if (paper := reading("provenance", lambda name=name: _paper(run.path / "provenance" / f"{name}.json")))
        },
        "commands": {verb: command(verb, run.path) for verb in ("resume", "evaluate", "play", "verify")},
        "problems": problems,
    }
    return _cut(page)


def _paper(path: Path) -> dict[str, Any] | None:
    """Return what a run notes of its origin; None where that is nothing: git.json says null outside a repository."""
    try:
        paper = read_json(path)
    except FileNotFoundError:
        return None
    except DocumentError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return paper if isinstance(paper, dict) else None


def _shares(facts: IndexedRun) -> dict[str, float]:
    prefix = "time/share/"
    return {name.removeprefix(prefix): value for name, value in facts.metrics.items() if name.startswith(prefix)}


def _checkpoints(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "counters": dict(each.counters),
            "created": each.created,
            "size": each.size,
            "best": each.is_best,
            "last": each.is_last,
            "damage": each.damage,
        }
        for each in outline_checkpoints(run.checkpoints_path)[-_MOST:]
    ]


def _evaluations(run: Run) -> list[dict[str, Any]]:
    found = read_evaluations(run.logs)[-_MOST:]
    return [{key: value for key, value in each.items() if key not in _EACH_EPISODE} for each in found]


def _media(run_directory: Path) -> list[dict[str, Any]]:
    found = []
    for name, status in files_below(run_directory, "videos"):
        kind = kind_of(name)
        if kind is not None:
            what = kind.partition("/")[0]
            found.append({"folder": "videos", "name": name, "kind": what, "size": status.st_size, "time": status.st_mtime})
    return found[:_MOST]


def _cut(value: Any, depth: int = 0) -> Any:
    """Return data of bounded size: a stranger's summary may hold anything."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    if depth >= _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {str(key)[:300]: _cut(item, depth + 1) for key, item in list(value.items())[: 10 * _MOST]}
    if isinstance(value, list | tuple):
        return [_cut(item, depth + 1) for item in value[:_MOST]]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_LONGEST_TEXT]

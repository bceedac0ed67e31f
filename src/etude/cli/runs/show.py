"""`etude runs show`: one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunName, RunsFolder
from etude.cli.places import find_run
from etude.cli.runs.words import age, moment, number, size
from etude.files.printable import printable_line

if TYPE_CHECKING:
    from etude.runs.checkpoint_selection import CheckpointOutline
    from etude.runs.indexed_run import IndexedRun
    from etude.runs.run import Run
    from etude.telemetry.alert_log import Transition

_MOST_EVALUATIONS = 10
_MOST_ALERTS = 20
_EACH_EPISODE = ("version", "returns", "raw_returns", "lengths")
_NOT_SHOWN = ("time/share/", "system/")
_SAID_ABOVE = ("environment.id", "environment.spec.", "algorithm.name", "experiment.")


def show(run: RunName, /, *, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """Show one run: how it stands, what it is made of, its checkpoints, evaluations on request and its last metrics."""
    from etude.runs.checkpoint_selection import outline_checkpoints
    from etude.runs.cleanup import size_of
    from etude.runs.run_reader import read_entry

    found = find_run(run, runs).run
    entry = read_entry(found.path, stamp="")
    indexed = entry.now()
    assert indexed is not None  # find_run has read its record
    checkpoints = outline_checkpoints(found.checkpoints_path)
    git = _read_json(found.path / "provenance" / "git.json")
    changes = _changes(found.logs / "changes.jsonl")
    problems = list(entry.problems)
    evaluations, alerts = _evaluations(found, problems), _alerts(found, problems)
    whole = size_of(found.path)
    if as_json:
        from etude.cli.runs.columns import as_json as to_json

        summary = _read_json(found.summary_path) or {}
        known = {**found.record, **to_json(indexed), "summary": summary, "git": git, "size": whole}
        listed = [_checkpoint_json(each) for each in checkpoints]
        emit_json(
            {
                **known,
                "checkpoints": listed,
                "evaluations": evaluations,
                "alerts": alerts,
                "changes": changes,
                "problems": problems,
            }
        )
        return 0
    say(printable_line(indexed.id))
    for label, text in _facts(found, indexed, git, whole):
        say(printable_line(f"  {label:<12} {text}"))
    for title, lines in (
        ("asked", _asked(found)),
        ("changed on resuming", changes),
        ("checkpoints", [_checkpoint_line(each) for each in checkpoints] or [found.why_no_checkpoints or "none"]),
        ("evaluations", [_evaluation_line(each) for each in evaluations[-_MOST_EVALUATIONS:]]),
        ("alerts", [_alert_line(each) for each in alerts[-_MOST_ALERTS:]]),
        ("last metrics", [f"{name:<28} {number(value)}" for name, value in indexed.metrics.items() if _is_shown(name)]),
        ("problems", problems),
    ):
        if lines:
            say("\n".join([f"  {title}", *(printable_line(f"    {line}") for line in lines)]))
    return 0


def _alerts(run: Run, problems: list[str]) -> list[Transition]:
    from etude.errors import EtudeError
    from etude.telemetry.alert_log import alerts_of

    try:
        return alerts_of(run.path)
    except (OSError, EtudeError) as error:
        problems.append(str(error))
        return []


def _alert_line(line: Transition) -> str:
    said = line["message"] if line["state"] == "raised" else "cleared"
    return f"{line['env_steps']:>12,}  {line['id']}: {said}"


def _facts(run: Run, indexed: IndexedRun, git: dict[str, Any] | None, whole: int) -> list[tuple[str, str]]:
    from etude.runs.run_keys import age_seconds
    from etude.telemetry.readable import duration

    # What is written while it runs says nothing about the end, or is about an earlier one.
    reason = None if indexed.status in ("running", "crashed") else run.record.get("stop_reason")
    facts = [
        ("status", f"{indexed.status}{f' ({reason})' if reason else ''}"),
        ("lies in", f"{run.path} ({size(whole)})"),
        ("task", f"{indexed.environment or '-'}, {indexed.algorithm or '-'}, seed {indexed.seed}"),
        ("created", f"{moment(indexed.created)} ({age(age_seconds(indexed))} ago)"),
    ]
    facts += [("group", indexed.group)] if indexed.group else []
    facts += [("tags", ", ".join(indexed.tags))] if indexed.tags else []
    if git and indexed.commit:
        facts.append(("commit", f"{indexed.commit[:12]} on {git.get('branch') or 'no branch'}{_differs(run, git)}"))
    if indexed.config_hash:
        facts.append(("config", f"{indexed.config_hash}; without its seed {indexed.setup_hash}"))
    steps = f"{indexed.env_steps or 0:,} of {indexed.total_steps or 0:,} environment steps"
    counted = (("updates", indexed.updates), ("episodes", indexed.episodes))
    facts.append(("progress", ", ".join([steps, *(f"{count:,} {name}" for name, count in counted if count is not None)])))
    if indexed.best is not None:
        when = "" if indexed.best_step is None else f" at {indexed.best_step:,} steps"
        lowest = ", the lowest" if indexed.best_mode == "min" else ""
        facts.append(("best", f"{number(indexed.best)}{when} ({indexed.best_metric}{lowest})"))
    if indexed.elapsed_s is not None:
        facts.append(("took", duration(indexed.elapsed_s)))
    return facts


def _differs(run: Run, git: dict[str, Any]) -> str:
    """How the code differed from its commit."""
    patch = run.path / "provenance" / "changes.patch"
    parts = [f"a patch of {size(patch.stat().st_size)}"] if patch.is_file() else []
    parts += [f"{git['untracked']} untracked files"] if git.get("untracked") else []
    return f", with {' and '.join(parts)}" if parts else ", with changes" if git.get("dirty") else ""


def _asked(run: Run) -> list[str]:
    """What the user and the presets set; everything else is at its default."""
    from etude.runs.run_reader import read_flat_config

    settings = read_flat_config(run.config_path, []).items()
    asked = {key: value for key, value in settings if not key.startswith(_SAID_ABOVE)}
    return [f"{key:<28} {value if isinstance(value, str) else json.dumps(value)}" for key, value in asked.items()]


def _checkpoint_line(checkpoint: CheckpointOutline) -> str:
    marks = [mark for mark, holds in (("best", checkpoint.is_best), ("last", checkpoint.is_last)) if holds]
    kind = "" if checkpoint.kind == "full" else {"policy": "policy only"}.get(checkpoint.kind, checkpoint.kind)
    facts = [size(checkpoint.size), moment(checkpoint.created), kind, " ".join(marks)]
    return f"{checkpoint.name:<28} {'  '.join(each for each in facts if each)}"


def _checkpoint_json(checkpoint: CheckpointOutline) -> dict[str, Any]:
    facts = {"name": checkpoint.name, "kind": checkpoint.kind, **checkpoint.counters, "created": checkpoint.created}
    return {**facts, "size": checkpoint.size, "best": checkpoint.is_best, "last": checkpoint.is_last}


def _evaluations(run: Run, problems: list[str]) -> list[dict[str, Any]]:
    """What `etude evaluate` has measured, without every episode."""
    from etude.errors import EtudeError
    from etude.runs.evaluations import read_evaluations

    try:
        found = read_evaluations(run.logs)
    except EtudeError as error:
        problems.append(str(error))
        return []
    return [{key: value for key, value in each.items() if key not in _EACH_EPISODE} for each in found]


def _evaluation_line(evaluation: dict[str, Any]) -> str:
    def shown(key: str) -> str:
        value = evaluation.get(key)
        return number(value) if isinstance(value, int | float) else "-"

    episodes = f"{shown('episodes')} episodes{', then out of time' if evaluation.get('timed_out') is True else ''}"
    results = f"return {shown('return_mean')} ± {shown('return_std')}, {episodes}, {evaluation.get('mode')} actions"
    return f"{evaluation.get('checkpoint')!s:<28} {results}  {moment(str(evaluation.get('created')))}"


def _changes(path: Path) -> list[str]:
    from etude.files.documents import parse_json
    from etude.files.regular import read_bytes

    try:
        rows = [parse_json(line) for line in read_bytes(path).split(b"\n") if line.strip()]
        return [f"at {row['env_steps']:,} steps: {change}" for row in rows for change in row["changes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _read_json(path: Path) -> dict[str, Any] | None:
    from etude.errors import UserError
    from etude.runs.records import read_record

    try:
        return read_record(path)
    except UserError:  # null: not made in a repository
        return None


def _is_shown(metric: str) -> bool:
    return not metric.startswith(_NOT_SHOWN)

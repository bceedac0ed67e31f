"""`etude debug`: what a run with --debug found when it met a NaN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import find_run
from etude.errors import EtudeError, UserError
from etude.files.printable import one_line
from etude.files.tensor_dump import find_dumps, read_report

if TYPE_CHECKING:
    from etude.runs.run import Run

DEBUG_FOLDER = Path("debug")
"""Where `etude train --debug` puts its runs."""
_GROUPS = ("inputs", "batch", "gradients", "weights")
_MOST_LINES = 12
_LARGE = 1e4
"""Inputs beyond it are seldom meant."""


def debug(
    run: Annotated[str, Parameter(name="RUN", help="@last, an id, a unique prefix of one, a name, or a path.")] = "@last",
    /,
    *,
    dump: str | None = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Show what was NaN or infinite first in a run of `etude train --debug`, what its module was given, and what to try.

    Runs are looked for in ./debug, where --debug puts them, unless --runs says otherwise.

    Parameters
    ----------
    dump
        Which of several dumps, such as nan-0000000768. Default: the first.
    """
    found = _find(run, runs)
    dumps = find_dumps(found.path)
    if not dumps:
        raise EtudeError(f"run {found.id} has no dump of a NaN; `etude train ... --debug` writes one where it meets one")
    names = [path.name for path in dumps]
    if dump is not None and dump not in names:
        raise UserError(f"--dump {one_line(dump, 60)}: run {found.id} has {', '.join(names[:8])}")
    folder = dumps[0 if dump is None else names.index(dump)]
    report = read_report(folder)
    if as_json:
        emit_json({"run": found.id, "folder": str(folder), **report})
    else:
        say("\n".join(_lines(found, folder, report)))
    return 0


def _find(run: str, runs: Path | None) -> Run:
    if runs is not None or not DEBUG_FOLDER.is_dir() or "/" in run:
        return find_run(run, runs).run
    try:
        return find_run(run, DEBUG_FOLDER).run
    except EtudeError:
        return find_run(run, None).run


def _lines(run: Run, folder: Path, report: dict[str, Any]) -> list[str]:
    counters = report.get("counters") if isinstance(report.get("counters"), dict) else {}
    assert isinstance(counters, dict)
    when = f"{_number(counters.get('env_steps'))} environment steps and {_number(counters.get('updates'))} updates"
    lines = [
        _text(report.get("message")),
        f"  when    at {when}, phase {_text(report.get('phase'))}",
        f"  tensor  {_text(report.get('where'))} of {_text(report.get('tensor'))}",
        f"  module  {_text(report.get('module'))} {_text(report.get('type'))}".rstrip(),
        f"  dump    {folder}",
    ]
    tensors = report.get("tensors") if isinstance(report.get("tensors"), dict) else {}
    assert isinstance(tensors, dict)
    groups = {group: tensors[group] for group in _GROUPS if isinstance(tensors.get(group), dict)}
    for group, members in groups.items():
        rows = [(_text(name), facts) for name, facts in members.items() if isinstance(facts, dict)]
        rows.sort(key=lambda row: not _is_bad(row[1]))
        bad = sum(_is_bad(facts) for _, facts in rows)
        lines += ["", f"{group}: {len(rows)} tensors, {bad} with NaN or infinity" if rows else f"{group}: none"]
        shown = rows[: max(_MOST_LINES, min(bad, 2 * _MOST_LINES))]
        width = min(40, max((len(name) for name, _ in shown), default=0))
        lines += [f"  {'!' if _is_bad(facts) else ' '} {name:<{width}}  {_described(facts)}" for name, facts in shown]
        if len(rows) > len(shown):
            lines.append(f"    +{len(rows) - len(shown)} more in {folder.name}/report.json")
    return [*lines, "", "What to try", *(f"  - {tip}" for tip in _tips(run, report, groups))]


def _tips(run: Run, report: dict[str, Any], groups: dict[str, dict[str, Any]]) -> list[str]:
    tips = []
    columns = [_text(name) for name, facts in groups.get("batch", {}).items() if isinstance(facts, dict) and _is_bad(facts)]
    weights = [_text(name) for name, facts in groups.get("weights", {}).items() if isinstance(facts, dict) and _is_bad(facts)]
    if columns:
        environment = _text(run.record.get("environment"))
        tips.append(f"the batch had it already ({', '.join(columns[:4])}): `etude check {environment}` looks for the cause")
    elif weights and report.get("where") != "weight":
        tips.append(f"the weight {weights[0]} was broken before: by the step before, or by code that writes to it")
    if report.get("where") == "gradient":
        tips.append("the forward pass was fine: look at the loss for a logarithm or root of 0, or a division by it")
    given = [facts for group in ("inputs", "batch") for facts in groups.get(group, {}).values() if isinstance(facts, dict)]
    bounds = [facts[side] for facts in given for side in ("min", "max") if _is_number(facts.get(side))]
    largest = max(map(abs, bounds), default=0)
    if largest > _LARGE:
        scaled = "environment.normalize_observations=rolling or environment.normalize_rewards=true makes them small"
        tips.append(f"numbers up to {largest:.3g} went in: {scaled}")
    again = f"etude train --from-run {run.path} --debug"
    tips.append(f"a smaller step: `{again} algorithm.learning_rate=1e-4`, or a lower algorithm.max_grad_norm")
    tips.append("the tensors: `safetensors.torch.load_file('.../batch.safetensors')` in Python")
    return tips


def _described(facts: dict[str, Any]) -> str:
    shape = facts.get("shape")
    size = f"({', '.join(_number(each) for each in shape[:8])})" if isinstance(shape, list) else "?"
    parts = [size, _text(facts.get("dtype"))]
    if _is_number(facts.get("min")) and _is_number(facts.get("max")):
        parts.append(f"{facts['min']:.4g} … {facts['max']:.4g}")
        parts.append(f"mean {facts['mean']:.4g}" if _is_number(facts.get("mean")) else "")
    kinds = {"nan": "NaN", "infinite": "infinite"}
    parts += [f"{facts[kind]:,} {word}" for kind, word in kinds.items() if _is_count(facts.get(kind))]
    return "  ".join(part for part in parts if part)


def _is_bad(facts: dict[str, Any]) -> bool:
    return _is_count(facts.get("nan")) or _is_count(facts.get("infinite"))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> str:
    return f"{value:,}" if _is_number(value) else "?"


def _text(value: Any) -> str:
    return one_line(value, 200) if isinstance(value, str) else ""

"""From what a user types to a run, and to the checkpoint in it when they named one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from etude.errors import UserError, did_you_mean
from etude.runs.atomic import read_link
from etude.runs.run import LAST_LINK, Run

BEST_METRIC = "eval/return_mean"
_MOST_CANDIDATES = 8


class Selection(NamedTuple):
    """A run, and the folder's name of the checkpoint in it if the selector was a path to one."""

    run: Run
    checkpoint: str | None = None


def select_run(selector: str, root: Path) -> Selection:
    """Find what `selector` names: ``@last``, ``@best``, an id, a unique prefix of one, or a path."""
    if os.sep in selector or selector in (".", "..", "~"):
        return _from_path(Path(selector).expanduser())
    if not root.is_dir():
        if Path(selector).is_dir():
            return _from_path(Path(selector))
        raise UserError(f"run '{selector}': there is no runs directory {root.absolute()}")
    runs = Run.list(root)
    if selector == LAST_LINK:
        return Selection(_last(runs, root))
    if selector == "@best":
        return Selection(_best(runs, root))
    matches = [run for run in runs if run.id == selector] or [run for run in runs if run.id.startswith(selector)]
    if len(matches) == 1 and selector:
        return Selection(matches[0])
    if matches:
        shown = "\n".join(f"  {run.id}" for run in matches[:_MOST_CANDIDATES])
        more = f"\n  ... and {len(matches) - _MOST_CANDIDATES} more" if len(matches) > _MOST_CANDIDATES else ""
        raise UserError(f"run '{selector}' could be any of\n{shown}{more}")
    if Path(selector).is_dir():
        return _from_path(Path(selector))
    hint = did_you_mean(selector, ["@last", "@best", *(run.id for run in runs)])
    raise UserError(f"run '{selector}' not found in {root.absolute()} ({len(runs)} runs){hint}")


def _from_path(path: Path) -> Selection:
    if not path.exists():
        raise UserError(f"run '{path}': no such directory")
    resolved = path.resolve()
    if resolved.parent.name == "checkpoints" and (resolved.parent.parent / "run.json").is_file():
        return Selection(Run.open(resolved.parent.parent), resolved.name)
    return Selection(Run.open(resolved))


def _last(runs: list[Run], root: Path) -> Run:
    linked = read_link(root / LAST_LINK)
    for run in runs:
        if run.id == linked:
            return run
    # The link is gone or its run was deleted.
    if not runs:
        raise UserError(f"@last: there are no runs in {root.absolute()}")
    return runs[0]


def _best(runs: list[Run], root: Path) -> Run:
    scored = [(value, run) for run in runs if (value := _best_value(run)) is not None]
    if not scored:
        raise UserError(f"@best: no run in {root.absolute()} has a best {BEST_METRIC} yet")
    return max(scored, key=lambda entry: entry[0])[1]


def _best_value(run: Run) -> float | None:
    try:
        best = run.summary.get("best")
    except UserError:
        return None
    if not isinstance(best, dict) or best.get("metric") != BEST_METRIC:
        return None
    value = best.get("value")
    # NaN is no result, and would win or lose at random.
    return float(value) if isinstance(value, int | float) and value == value else None

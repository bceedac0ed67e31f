"""From what a user types to a run, and to the checkpoint in it when they named one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from etude.errors import UserError, did_you_mean
from etude.files.atomic import read_link
from etude.runs.index import RunIndex
from etude.runs.indexed_run import MONITOR, IndexedRun
from etude.runs.run import LAST_LINK, Run, run_folders

_MOST_CANDIDATES = 8


class Selection(NamedTuple):
    """A run, and the folder's name of the checkpoint in it if the selector was a path to one."""

    run: Run
    checkpoint: str | None = None


def select_run(selector: str | os.PathLike[str], root: Path) -> Selection:
    """Find what `selector` names: ``@last``, ``@best``, an id, a unique prefix of one, a run's name, or a path."""
    if not isinstance(selector, str):
        return _from_path(Path(selector).expanduser())
    if os.sep in selector or selector in (".", "..", "~"):
        path = Path(selector).expanduser()
        called = [] if path.exists() or not root.is_dir() else _called(selector, root)  # a name may be sweep/first
        return _only(selector, called) if called else _from_path(path)
    if not root.is_dir():
        if Path(selector).is_dir():
            return _from_path(Path(selector))
        raise UserError(f"run '{selector}': there is no runs directory {root.absolute()}")
    if selector == LAST_LINK:
        return Selection(_last(root))
    if selector == "@best":
        return Selection(_best(root))
    matches = _identified(selector, root) or _called(selector, root)
    if matches:
        return _only(selector, matches)
    if Path(selector).is_dir():
        return _from_path(Path(selector))
    known = RunIndex(root).read().runs
    names = [name for run in known for name in (run.id, *_names(run))]
    hint = did_you_mean(selector, ["@last", "@best", *names])
    raise UserError(f"run '{selector}' not found in {root.absolute()} ({len(known)} runs){hint}")


def _only(selector: str, matches: list[Run]) -> Selection:
    if len(matches) == 1 and selector:
        return Selection(matches[0])
    shown = "\n".join(f"  {run.id}" for run in matches[:_MOST_CANDIDATES])
    more = f"\n  ... and {len(matches) - _MOST_CANDIDATES} more" if len(matches) > _MOST_CANDIDATES else ""
    raise UserError(f"run '{selector}' could be any of these, the newest first; name one by its id\n{shown}{more}")


def _from_path(path: Path) -> Selection:
    if not path.exists():
        raise UserError(f"run '{path}': no such directory")
    resolved = path.resolve()
    if resolved.parent.name == "checkpoints" and (resolved.parent.parent / "run.json").is_file():
        return Selection(Run.open(resolved.parent.parent), resolved.name)
    return Selection(Run.open(resolved))


def _called(selector: str, root: Path) -> list[Run]:
    """The runs of this name, newest first."""
    return [Run.open(run.path) for run in RunIndex(root).read().runs if selector in _names(run)]


def _names(run: IndexedRun) -> list[str]:
    """What people may call a run: its whole name, that without the seed which was added, and the name as it was asked for."""
    whole, asked = run.name or "", run.config.get("experiment.name")
    found = [whole, whole.removesuffix(f"-s{run.seed}"), asked if isinstance(asked, str) else ""]
    return [name for name in dict.fromkeys(found) if name]


def _identified(selector: str, root: Path) -> list[Run]:
    """The run with this id, or all whose ids begin so, newest first. Ids are folder names: no other run is opened."""
    ids = sorted((path.name for path in run_folders(root) if path.name.startswith(selector)), reverse=True)
    exact = [name for name in ids if name == selector]
    return [run for name in exact or ids if (run := _opened(root / name)) is not None]


def _opened(path: Path) -> Run | None:
    try:
        return Run.open(path)
    except UserError:
        return None


def _last(root: Path) -> Run:
    linked = read_link(root / LAST_LINK)
    run = _opened(root / linked) if linked and not (root / linked).is_symlink() else None
    if run is not None:
        return run
    # The link is gone or its run was deleted.
    runs = Run.list(root)
    if not runs:
        raise UserError(f"@last: there are no runs in {root.absolute()}")
    return runs[0]


def _best(root: Path) -> Run:
    """The best of the runs that monitor the usual metric, or else of those that all monitor one other."""
    by_monitor: dict[tuple[str | None, str], list[tuple[float, IndexedRun]]] = {}
    for run in RunIndex(root).read().runs:
        if run.best is not None:
            by_monitor.setdefault((run.best_metric, run.best_mode), []).append((run.best, run))
    if not by_monitor:
        raise UserError(f"@best: no run in {root.absolute()} has a best {MONITOR} yet")
    monitor = (MONITOR, "max") if (MONITOR, "max") in by_monitor or len(by_monitor) > 1 else next(iter(by_monitor))
    if monitor not in by_monitor:
        kinds = ", ".join(f"{metric} ({mode})" for metric, mode in by_monitor)
        raise UserError(f"@best: the runs in {root.absolute()} monitor different metrics ({kinds}); name one of them by its id")
    choose = min if monitor[1] == "min" else max
    return Run.open(choose(by_monitor[monitor], key=lambda entry: entry[0])[1].path)

"""Where runs live, and which run a word names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.runs.run_selection import Selection


def runs_root(given: Path | None) -> Path:
    """Return --runs, or $ETUDE_RUNS, or ./runs."""
    from etude.runs.places import default_root

    return given or default_root()


def existing_runs_root(given: Path | None) -> Path:
    """Return the folder of runs, or say that there is none."""
    from etude.errors import UserError

    root = runs_root(given)
    if not root.is_dir():
        raise UserError(f"there is no runs directory {root.absolute()}; name another with --runs or $ETUDE_RUNS")
    return root


def find_run(selector: str, runs: Path | None) -> Selection:
    """Return the run a selector names: @last, @best, an id, a unique prefix, a name, a path, or hub:OWNER/NAME."""
    from etude.runs.run import Run
    from etude.runs.run_selection import Selection, select_run

    if selector.startswith("hub:"):
        from etude.training import hub_models

        return Selection(Run.open(hub_models.download(selector.removeprefix(hub_models.PREFIX))))
    return select_run(selector, runs_root(runs))

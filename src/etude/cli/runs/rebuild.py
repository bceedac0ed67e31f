"""`etude runs rebuild`: read every run directory again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, note, say
from etude.cli.places import runs_root


def rebuild(*, runs: Path | None = None, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Build the index of runs anew from their directories, and say what in them can't be read.

    It is never necessary: a listing notices what has changed, and an index that is missing or damaged is rebuilt by itself.

    Parameters
    ----------
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
    as_json
        Print JSON.
    """
    from etude.errors import UserError
    from etude.runs.index import RunIndex

    root = runs_root(runs)
    if not root.is_dir():
        raise UserError(f"there is no runs directory {root.absolute()}; name another with --runs or $ETUDE_RUNS")
    listing = RunIndex(root).rebuild()
    if as_json:
        emit_json({"runs": len(listing.runs), "problems": listing.problems})
        return 0
    for problem in listing.problems:
        note(f"can't be read: {problem}")
    say(f"{len(listing.runs)} runs in {root}")
    return 0

"""`etude runs rebuild`: read every run directory again."""

from __future__ import annotations

from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import existing_runs_root


def rebuild(*, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """Build the index of runs anew from their directories, and say what in them can't be read.

    It is never necessary: a listing notices what has changed, and an index that is missing or damaged is rebuilt by itself.
    """
    from etude.runs.index import RunIndex

    root = existing_runs_root(runs)
    listing = RunIndex(root).rebuild()
    if as_json:
        emit_json({"runs": len(listing.runs), "problems": listing.problems})
        return 0
    for problem in listing.problems:
        note(f"can't be read: {problem}")
    say(f"{len(listing.runs)} runs in {root}")
    return 0

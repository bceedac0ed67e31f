"""`etude runs tag`: words to find a run by, and to keep it by."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunName, RunsFolder
from etude.cli.places import find_run

Tag = Annotated[str, Parameter(name="TAG", help="Tags to add.")]


def tag(run: RunName, /, *add: Tag, remove: list[str] | None = None, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """Add tags to a run or remove them, also while it trains, and print those it has. A tagged run is never cleaned up.

    Parameters
    ----------
    remove
        A tag to remove. May be repeated.
    """
    from etude.errors import UserError, did_you_mean

    found = find_run(run, runs).run
    gone = list(remove or ())
    if both := sorted({*add} & {*gone}):
        raise UserError(f"tag '{both[0]}' is to be added and removed: choose one")
    had = [str(each) for each in found.record.get("tags") or []]
    for word in gone:
        if word not in had:
            raise UserError(f"run {found.id} has no tag '{word}'; it has {', '.join(had) or 'none'}{did_you_mean(word, had)}")
    tags = found.edit_tags(add=add, remove=gone) if add or gone else had
    if as_json:
        emit_json({"id": found.id, "tags": tags})
    else:
        say(f"{found.id}: {', '.join(tags) or 'no tags'}")
    return 0

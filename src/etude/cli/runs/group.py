"""`etude runs group`: put a run into a group, or take it out of one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunName, RunsFolder
from etude.cli.places import find_run

Name = Annotated[str | None, Parameter(name="NAME", help="The group. Without it, the group is only printed.")]


def group(run: RunName, name: Name = None, /, *, remove: bool = False, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """Put a run into a group, also while it trains, and print the group it is in.

    Parameters
    ----------
    remove
        Take the run out of its group.
    """
    from etude.errors import UserError

    if remove and name is not None:
        raise UserError(f"{name} and --remove: choose one")
    found = find_run(run, runs).run
    if remove or name is not None:
        found.edit_group(name)
    now = found.record.get("group")
    if as_json:
        emit_json({"id": found.id, "group": now})
    else:
        say(f"{found.id}: {now or 'no group'}")
    return 0

"""`etude control`: ask something of a run while it trains."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunName, RunsFolder, Words
from etude.cli.places import find_run


def control(
    run: RunName,
    action: Annotated[str, Parameter(name="ACTION")],
    /,
    *settings: Words,
    wait: float = 30.0,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Ask a run that trains to save, evaluate, record a video, pause, continue or stop, or to change settings.

    It is done at the end of a cycle, and nothing but `set` changes what is learnt; `set` is recorded, and `etude verify` makes
    the change again. Exit code 0: done; 1: refused, or not answered in time.

    Parameters
    ----------
    action
        save, evaluate, video, pause, continue, stop, set, or status, which asks for nothing.
    settings
        What to set: learning rates, coefficients and other schedules of the algorithm, cadences, the budget.
    wait
        Seconds to wait for the answer; 0 asks and leaves.
    """
    from etude.control import ask_and_wait, read_status
    from etude.errors import UserError

    found = find_run(run, runs).run
    if action == "status":
        status = read_status(found.status_path)
        if status is None:
            raise UserError(f"run {found.id} has no run_status.json: it was made by an earlier Etude, or has just begun")
        emit_json(status)
        return 0
    request, answer = ask_and_wait(found, action, settings, wait)
    if as_json:
        emit_json({"id": request.id} if answer is None else answer.event)
    elif answer is not None:
        say(f"{found.id}: {answer.said}")
    elif wait:
        note(f"{found.id}: asked; it has not answered within {wait:g} seconds, and does so at the end of its cycle")
    return 0 if (answer is None and not wait) or (answer is not None and answer.done) else 1

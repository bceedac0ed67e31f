"""`etude resume`: go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code, arguments


def resume(
    run: Annotated[str, Parameter(name="RUN")],
    /,
    *overrides: Annotated[str, Parameter(name="key=value")],
    checkpoint: str | None = None,
    runs: Path | None = None,
    trust: bool = False,
    stored_code: bool = False,
    force: bool = False,
    quiet: Annotated[bool, Parameter(alias="-q")] = False,
) -> int:
    """Continue a run exactly where it stopped, to the same end; changed settings are shown and recorded.

    Parameters
    ----------
    run
        @last, @best, an id, a unique prefix of one, a name, or a path.
    overrides
        Settings to change from here on, such as training.total_steps=200000.
    checkpoint
        The checkpoint to go on from, by sequence or environment steps. Default: the newest.
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
    trust
        Honour import paths in the config of somebody else's run.
    stored_code
        Use the code that the run was made with, restored into a worktree of its own, instead of what is here now.
    force
        Load a checkpoint that says it is of another algorithm, such as one whose class you renamed, if its state fits.
    quiet
        Print nothing but errors and the last line.
    """
    from etude.cli.train import exit_code

    if stored_code:
        return again_with_stored_code(find_run(run, runs).run, run, trusted=trust)
    with starting(f"resuming {run}", quiet=quiet) as tell:
        found = find_run(run, runs)
        tell("loading torch")
        from etude.training import session

        options = {"trusted": trust, "force": force, "quiet": quiet, "tell": tell, "command_line": arguments.get(())}
        training = session.reopen(found.run, words=overrides, checkpoint=checkpoint or found.checkpoint, **options)
    return exit_code(training.finish().status)

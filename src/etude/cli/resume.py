"""`etude resume`: go on with a run."""

from __future__ import annotations

from etude.cli.parameters import Quiet, RunName, RunsFolder, StoredCode, Trust, Words
from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code, arguments


def resume(
    run: RunName,
    /,
    *overrides: Words,
    checkpoint: str | None = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
    force: bool = False,
    quiet: Quiet = False,
) -> int:
    """Continue a run exactly where it stopped, to the same end; changed settings are shown and recorded.

    Parameters
    ----------
    overrides
        Settings to change from here on, such as training.total_steps=200000.
    checkpoint
        The checkpoint to go on from, by sequence or environment steps. Default: the newest.
    force
        Load a checkpoint that says it is of another algorithm, such as one whose class you renamed, if its state fits.
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

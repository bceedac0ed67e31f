"""`etude resume`: go on with a run."""

from __future__ import annotations

from contextlib import ExitStack

from etude.cli.parameters import PauseAt, Quiet, RunName, RunsFolder, StoredCode, Trust, Words
from etude.cli.places import find_run
from etude.cli.processes import is_follower, is_to_be_launched, launch, require_as_many
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code, arguments


def resume(
    run: RunName,
    /,
    *overrides: Words,
    checkpoint: str | None = None,
    processes: int | None = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
    force: bool = False,
    pause_at: PauseAt = None,
    quiet: Quiet = False,
) -> int:
    """Continue a run exactly where it stopped, to the same end; changed settings are shown and recorded.

    Parameters
    ----------
    overrides
        Settings to change from here on, such as training.total_steps=200000.
    checkpoint
        The checkpoint to go on from, by sequence or environment steps. Default: the newest.
    processes
        The processes that train it together; as many as so far, which is the default.
    force
        Load a checkpoint that says it is of another algorithm, such as one whose class you renamed, if its state fits.
    """
    from etude.cli.options import at_least
    from etude.cli.train import exit_code

    at_least(1, pause_at=pause_at)
    if stored_code:
        return again_with_stored_code(find_run(run, runs).run, run, trusted=trust)
    quiet = quiet or is_follower()
    with ExitStack() as begun:
        tell = begun.enter_context(starting(f"resuming {run}", quiet=quiet))
        found = find_run(run, runs)
        tell("loading torch")
        from etude.training import session
        from etude.training.stored_config import load_config
        from etude.training.together import come_together

        settings = load_config(found.run, trusted=trust)
        require_as_many(settings, processes, found.run.path)
        if is_to_be_launched(settings):
            begun.close()
            return launch(settings)
        together = come_together(settings)
        options = {"trusted": trust, "force": force, "quiet": quiet, "tell": tell, "command_line": arguments.get(())}
        options["together"] = together
        training = session.reopen(found.run, words=overrides, checkpoint=checkpoint or found.checkpoint, **options)
        if pause_at is not None:
            from etude.training.pausing import pause_at as pause

            pause(training, pause_at)
    training.listens_to_keys = True
    return exit_code(training.finish().status)

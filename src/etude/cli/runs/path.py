"""`etude runs path`: where a run or one of its checkpoints lies."""

from __future__ import annotations

from etude.cli.output import emit_path
from etude.cli.parameters import RunName, RunsFolder
from etude.cli.places import find_run


def path(run: RunName, /, *, checkpoint: str | None = None, runs: RunsFolder = None) -> int:
    """Print the path of a run, or of one of its checkpoints, and nothing else: for scripts.

    Parameters
    ----------
    checkpoint
        best, last, a sequence number, environment steps or a folder's name.
    """
    from etude.runs.checkpoint_selection import choose_checkpoint, outline_checkpoints

    found = find_run(run, runs)
    wanted = checkpoint or found.checkpoint
    if wanted is None:
        emit_path(found.run.path)
        return 0
    folder = found.run.checkpoints_path
    emit_path(choose_checkpoint(wanted, outline_checkpoints(folder), folder, found.run.why_no_checkpoints).path)
    return 0

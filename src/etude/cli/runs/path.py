"""`etude runs path`: where a run or one of its checkpoints lies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_path
from etude.cli.places import find_run


def path(
    run: Annotated[str, Parameter(name="RUN")],
    /,
    *,
    checkpoint: str | None = None,
    runs: Path | None = None,
) -> int:
    """Print the path of a run, or of one of its checkpoints, and nothing else: for scripts.

    Parameters
    ----------
    run
        @last, @best, an id, a unique prefix of one, a name, or a path.
    checkpoint
        best, last, a sequence number, environment steps or a folder's name.
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
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

"""What is said when a sitting of training can't go on: what failed, where, and how the run does go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etude.errors import EtudeError
from etude.runs.disk_failure import disk_way_out, in_words
from etude.runs.places import command
from etude.runs.run import Run


@contextmanager
def disk_failures_reported(run: Run) -> Iterator[None]:
    """Within, a disk that is full, read-only or broken ends the sitting with one line, and no traceback."""
    try:
        yield
    except (OSError, EtudeError) as error:
        way_out = disk_way_out(error)
        if way_out is None:
            raise
        said = in_words(error) if isinstance(error, OSError) else str(error)
        raise EtudeError(f"{said}; {way_out}, then {goes_on(run)}") from error


def goes_on(run: Run) -> str:
    """Return the command that continues a run, and from where."""
    again = command("resume", run.path)
    try:
        saved = run.checkpoints().find("last").counters["env_steps"]
    except (OSError, EtudeError):
        return f"`{again}` begins anew"
    return f"`{again}` goes on from {saved:,} environment steps"

"""Another process that holds a run: it does something, says one line, and waits until it is ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CREATES = "print(Run.create(path, name='x', config_yaml='', resolved_yaml='').path, flush=True); sys.stdin.read()"
_LOCKS = "with Run.open(path).lock(): print('locked', flush=True); sys.stdin.read()"


@contextmanager
def _child(code: str, path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    script = f"import sys; from pathlib import Path; from etude.runs.run import Run\npath = Path(sys.argv[1])\n{code}"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child, child.stdout.readline().strip()


@contextmanager
def running(root: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a run of its own in `root`."""
    with _child(_CREATES, root) as (child, said):
        yield child, Path(said)


@contextmanager
def holding(run: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a run."""
    with _child(_LOCKS, run) as (child, said):
        assert said == "locked"
        yield child

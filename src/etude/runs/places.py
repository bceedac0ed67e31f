"""Where runs live unless somebody says otherwise, and commands that find a run where it lies."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def default_root() -> Path:
    """Return $ETUDE_RUNS, or ./runs: where the command line and Python look for runs and put them."""
    return Path(os.environ.get("ETUDE_RUNS") or "runs")


def runs_option(root: Path) -> str:
    """Return `` --runs ROOT``, or nothing where that is the default."""
    is_default = root.absolute().resolve() == default_root().absolute().resolve()
    return "" if is_default else f" --runs {shlex.quote(str(root))}"


def command(verb: str, run: Path, *words: str) -> str:
    """Return `etude VERB RUN ...` for the run in this directory, to be copied into a shell."""
    return " ".join(["etude", verb, shlex.quote(run.name), *words]) + runs_option(run.parent)

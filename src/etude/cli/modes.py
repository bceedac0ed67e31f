"""`etude run local`, `debug`, `dry` and `cluster`: names that users of other systems know, for verbs that are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

Words = Annotated[
    str, Parameter(name="WORDS", allow_leading_hyphen=True, help="What follows there: ENV:ALGO, settings, options.")
]

app = App(name="run", help="Train here, in debug mode, dry, or on a cluster: other names of `train` and `launch ray`.")


@app.command
def local(*words: Words) -> int:
    """Train on this machine: `etude train WORDS`; several seeds run side by side."""
    return _run("train", words)


@app.command
def debug(*words: Words) -> int:
    """Train in one process, eager, every number checked: `etude train WORDS --debug`."""
    return _run("train", ["--debug", *words])


@app.command
def dry(*words: Words) -> int:
    """Print the complete config and do nothing: `etude train WORDS --print-config`."""
    return _run("train", ["--print-config", *words])


@app.command
def cluster(*words: Words) -> int:
    """Train on a Ray cluster that runs already, the one of $RAY_ADDRESS: `etude launch ray train WORDS`."""
    return _run("launch", ["ray", "train", *words])


def _run(verb: str, words: Sequence[str]) -> int:
    from etude.cli import app as etude
    from etude.cli import stored_code

    stored_code.arguments.set((verb, *words))
    code = etude([verb, *words], exit_on_error=False, print_error=False, result_action="return_value")
    return code if isinstance(code, int) else 0

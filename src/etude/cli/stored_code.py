"""`--stored-code`: a command again, with the code that its run was made with, in a worktree that is gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextvars import ContextVar
from pathlib import Path

from etude.cli.output import note
from etude.errors import UserError
from etude.runs.run import Run

_PATHS = ("--runs", "--out", "--video", "--paths", "--events", "--csv", "--json")
arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments")
"""What the command that is running was asked, word by word."""


def again_with_stored_code(run: Run, asked: str, *, trusted: bool) -> int:
    """Run this very command with the run's own code and return its exit code; the user's files stay as they are.

    `asked` is how the run was named.
    """
    from etude.runs.stored_code import read_stored_code
    from etude.verification.code_place import code_of

    if read_stored_code(run.path) is None:
        raise UserError(f"--stored-code: run {run.id} was made outside a git repository, where code is not stored")
    with (
        tempfile.TemporaryDirectory(prefix="etude-") as folder,
        code_of(run, current=False, trusted=trusted, repository=None, temporary=Path(folder), say=note) as place,
    ):
        note(f"code: {place.description}")
        for each in place.notes:
            note(each)
        environment = dict(os.environ)
        path = [*map(str, place.python_path), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join([str(place.cwd), *path])
        process = subprocess.Popen([sys.executable, "-m", "etude", *_words(run, asked)], cwd=place.cwd, env=environment)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # it has heard of it too, and saves


def _words(run: Run, asked: str) -> list[str]:
    """The words of this command, as they mean the same in another folder."""
    words = [word for word in arguments.get() if word != "--stored-code"]
    words[words.index(asked)] = str(run.path.resolve())
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _PATHS and equals:
            words[index] = f"{option}={Path(value).absolute()}"
        elif word in _PATHS and index + 1 < len(words):
            words[index + 1] = str(Path(words[index + 1]).absolute())
    return words

"""Starts trainings in the background: `etude train …` and `etude resume …` in processes that outlive whoever started them.

start(words) ── settings checked here ── child ──► run.json ──► Started(run)
                                           └─────► its first error line, raised here
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from etude.errors import EtudeError, UserError
from etude.files.printable import printable
from etude.runs.process import descends_from
from etude.runs.run import Run, run_folders

LONGEST_START_S = 300.0
"""How long building environments and networks may take before there is a run."""
_POLL_S = 0.1
_MOST_ERRORS = 2**16
_IMPORT_PATH = re.compile(r"[^\W\d]\w*[.:][^\W\d]\w*")
"""`module.Class` or `module:Class`, alone or within a list."""
_OURS = ("ETUDE_PARENT",)
"""Variables that tie a command to the process that started it."""


@dataclass(frozen=True)
class Started:
    """A training in the background."""

    run: Run
    pid: int
    """The process that was started; with several processes, the parent of those that train."""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id


def start(
    words: Sequence[str],
    runs: Path,
    *,
    allow_imports: bool = False,
    longest_s: float = LONGEST_START_S,
    cwd: Path | None = None,
) -> Started:
    """Start `etude train WORDS` under `runs` and return once the run exists.

    `words` are ENV:ALGO (or an experiment's name) and key=value settings, no options. A mistake in them is a UserError before
    anything is started; what the child fails with is raised here, its first line. Import paths in settings are code, and are
    refused unless `allow_imports`.
    """
    words = _plain_words(words)
    check_words(words, allow_imports=allow_imports)
    before = set(run_folders(runs)) if runs.is_dir() else set()

    def new_run(pid: int) -> Run | None:
        found = [path for path in run_folders(runs) if path not in before] if runs.is_dir() else []
        return next((run for path in found if (run := _run_of(path, pid)) is not None), None)

    return _start(["train", *words, f"--runs={runs.absolute()}", "--quiet"], new_run, longest_s, cwd)


def resume(
    run: Run,
    words: Sequence[str] = (),
    *,
    trusted: bool = False,
    allow_imports: bool = False,
    longest_s: float = LONGEST_START_S,
    cwd: Path | None = None,
) -> Started:
    """Go on with `run` in the background, with `words` changed from here on; returns once it trains.

    Import paths that the run has are honoured as `etude resume` does, `trusted` or the user's own; new ones in `words` are
    refused unless `allow_imports`.
    """
    words = _plain_words(words)
    if unknown := next((word for word in words if "=" not in word), None):
        raise UserError(f"{unknown}: a setting is key=value")
    if run.status == "running":
        raise UserError(f"run {run.id} is running already (process {run.record.get('pid')})")
    _check_changes(run, words, trusted=trusted, allow_imports=allow_imports)
    options = ["--trust"] if trusted else []
    arguments = ["resume", str(run.path), *words, *options, "--quiet"]
    return _start(arguments, lambda pid: _run_of(run.path, pid), longest_s, cwd)


def check_words(words: Sequence[str], *, allow_imports: bool = False) -> None:
    """Compose what `etude train WORDS` would train, and raise what is wrong with it."""
    from etude.config.compose import compose  # with torch, which whoever only stops runs can do without

    if not words:
        raise UserError("what to train? such as CartPole-v1:ppo")
    spec, *settings = words
    if "=" in spec and ":" not in spec.partition("=")[0]:
        compose(None, words=words, allow_imports=allow_imports)
    else:
        compose(spec, words=settings, allow_imports=allow_imports)


def _check_changes(run: Run, words: Sequence[str], *, trusted: bool, allow_imports: bool) -> None:
    from etude.config.compose import compose
    from etude.config.validate import to_plain
    from etude.runs import trust
    from etude.training.stored_config import load_config

    stored = load_config(run, trusted=trusted)
    if words:
        before = to_plain(stored)
        # Checked before anything is composed, which imports what is named.
        named = [word for word in words if not allow_imports and _IMPORT_PATH.search(word.partition("=")[2])]
        if named:
            raise UserError(f"{named[0]}: names code to import, which is not allowed here; use `etude resume`")
        compose(None, words=words, base=before, allow_imports=trusted or trust.is_own(run.path))


def _plain_words(words: Sequence[str]) -> list[str]:
    for word in words:
        if word.startswith("-") or not word.strip() or not word.isprintable():
            raise UserError(f"{printable(word)!r}: ENV:ALGO and key=value settings are allowed here, and no options")
    return list(words)


def _run_of(path: Path, pid: int) -> Run | None:
    """The run in this folder, if the process `pid` or one that it started is training it now."""
    try:
        run = Run(path)
        record = run.record
    except EtudeError:  # not a run yet, or half of one
        return None
    owner = record.get("pid")
    is_ours = isinstance(owner, int) and descends_from(owner, pid)
    return run if is_ours and record.get("status") != "created" else None


def _start(arguments: Sequence[str], find: Callable[[int], Run | None], longest_s: float, cwd: Path | None = None) -> Started:
    with tempfile.TemporaryFile() as errors:  # nameless: it goes with the last process that has it open
        process = subprocess.Popen(
            [sys.executable, "-m", "etude", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # no Ctrl-C and no closed terminal of ours reaches it
            env={name: value for name, value in os.environ.items() if name not in _OURS},
        )
        deadline = time.monotonic() + longest_s
        while True:
            code = process.poll()  # before the run is looked for: one that ends at once has its run
            run = find(process.pid)
            if run is not None:
                # Whoever started it may live for weeks: it must not keep its dead as zombies.
                threading.Thread(target=process.wait, name=f"waits for {process.pid}", daemon=True).start()
                return Started(run, process.pid)
            if code is not None:
                raise _failure(errors, code)
            if time.monotonic() > deadline:
                process.terminate()
                raise EtudeError(f"{command_line(arguments)}: there was no run after {longest_s:g} seconds; it was ended")
            time.sleep(_POLL_S)


def _failure(errors: IO[bytes], code: int) -> EtudeError:
    """What the child said, as the error that it was there."""
    text = os.pread(errors.fileno(), _MOST_ERRORS, 0).decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    told = [line.removeprefix("etude: ") for line in lines if line.startswith("etude: ")]
    said = printable(told[0] if told else lines[-1] if lines else f"it ended with exit code {code}")
    return UserError(said) if code == 2 else EtudeError(said)


def command_line(arguments: Sequence[str]) -> str:
    """A command as people write it."""
    return " ".join(["etude", *arguments])

"""A run in a process of its own: what its parent starts, watches and stops."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PARENT = "ETUDE_PARENT"
"""Names the process that a command of ours belongs to: should that die, the command saves what it has and ends."""
_LAST_LINES = 12


class ChildRun:
    """`etude train …` or `etude resume …`, started; what it says to stderr goes to a file."""

    def __init__(self, arguments: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None) -> None:
        self.errors = errors
        self.code: int | None = None
        """Its exit code; None while it runs."""
        with errors.open("wb") as file:
            # Its own session: Ctrl-C reaches the parent alone, which passes it on once.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "etude", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
                env={**os.environ, **(environment or {}), PARENT: str(os.getpid())},
            )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def poll(self) -> int | None:
        """Look whether it has ended; returns its exit code then."""
        if self.code is None:
            self.code = self._process.poll()
        return self.code

    def wait(self) -> int:
        """Wait for its end."""
        self.code = self._process.wait()
        return self.code

    def send(self, number: int) -> None:
        """Send it a signal, if it runs: the first lets it save itself and stop, a second one stops it at once."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def complaint(self) -> str:
        """The last it printed to stderr."""
        return "\n".join(self.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LAST_LINES:])

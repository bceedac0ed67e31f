"""How far a verification is, on stderr: a line that moves in a terminal, a line each tenth elsewhere."""

from __future__ import annotations

import time

from etude.cli.output import note, note_in_place
from etude.verification.verify import Listener

_WIDTH = 24


class ProgressOnStderr(Listener):
    """Shows steps done and the time left."""

    def __init__(self, *, moving: bool) -> None:
        self._moving = moving
        self._goal, self._tenth, self._open = 1, 0, False
        self._began: float | None = None

    def say(self, text: str) -> None:
        """Print a message on its own line."""
        self._close_line()
        note(text)

    def begin(self, what: str, goal: int) -> None:
        """Start anew."""
        self._goal, self._began, self._tenth = max(1, goal), None, 0
        self.say(f"{what}: {goal:,} environment steps")

    def begun(self) -> None:
        """Count the time from here: starting a process is no measure of the rest."""
        self._began = self._began or time.monotonic()

    def row(self, env_steps: int) -> None:
        """Show a row's place, if there is something new to show."""
        done = min(1.0, env_steps / self._goal)
        spent = time.monotonic() - (self._began or time.monotonic())
        left = spent / done * (1 - done) if done > 0 else 0.0
        text = f"{env_steps:,} of {self._goal:,} environment steps" + (f", {left:.0f} s left" if done < 1 else "")
        if self._moving:
            bar = ("█" * round(done * _WIDTH)).ljust(_WIDTH, "·")
            note_in_place(f"{bar} {text}")
            self._open = True
        elif int(done * 10) > self._tenth:
            self._tenth = int(done * 10)
            note(f"  {text}")

    def end(self) -> None:
        """Leave the line."""
        self._close_line()

    def _close_line(self) -> None:
        if self._open:
            note("")
            self._open = False

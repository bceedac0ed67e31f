"""The bottom lines of a terminal, redrawn in place, with room above them for what others print."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from etude.files.printable import printable_line
from etude.telemetry.standing_in import StandIns


class LiveArea:
    """Draws lines in place at the bottom of a terminal; there is no thread, it draws when called."""

    def __init__(self, stream: TextIO, write: Callable[[str], None]) -> None:
        self._write = write
        self._rich = RichConsole(file=stream, force_terminal=True, highlight=False, legacy_windows=False)
        self._drawn = ""
        self._line_widths: list[int] = []
        self._redirected = StandIns(self._print_above)
        # Other threads may print while this one draws.
        self.lock = threading.RLock()

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows that can be drawn on; the last row of the terminal is the cursor's."""
        width, height = self._rich.size
        return width, max(1, height - 1)

    def show(self, lines: Sequence[Text]) -> None:
        """Replace what is drawn."""
        with self.lock:
            erase = self._erasure()
            lines = [_safe(line) for line in lines]
            self._line_widths = [line.cell_len for line in lines]
            self._drawn = self._render(lines)
            # One write, so that the terminal never shows the area empty.
            self._write(erase + self._drawn)

    def print(self, line: Text) -> None:
        """Print a line above the area."""
        with self.lock:
            self._write(self._erasure() + self._render([_safe(line)], crop=False) + self._drawn)

    def around(self, printing: Callable[[], object]) -> None:
        """Take the area away while someone else prints, and put it back below."""
        with self.lock:
            self._write(self._erasure())
            printing()
            self._write(self._drawn)

    def leave(self) -> None:
        """Leave what is drawn on the screen and continue below it."""
        with self.lock:
            self._drawn, self._line_widths = "", []

    def redirect_prints(self) -> None:
        """From now on, what anyone prints to this terminal appears above the area."""
        self._redirected.take_over()

    def restore_prints(self) -> None:
        """Undo `redirect_prints`, unless someone else has replaced the streams since."""
        self._redirected.give_back(end_line=True)

    def _print_above(self, stream: TextIO, whole: str) -> None:
        self.around(lambda: (stream.write(whole), stream.flush()))

    def _render(self, lines: Sequence[Text], crop: bool = True) -> str:
        with self._rich.capture() as captured:
            for line in lines:
                self._rich.print(line, no_wrap=crop, overflow="crop" if crop else "fold", crop=crop, soft_wrap=not crop)
        return captured.get()

    def _erasure(self) -> str:
        if not self._line_widths:
            return ""
        # A terminal made narrower since the last drawing has wrapped our lines.
        columns = max(1, self._rich.width)
        rows = sum(max(1, -(-width // columns)) for width in self._line_widths)
        return f"\r\x1b[{rows}A\x1b[J"


def _safe(line: Text) -> Text:
    """Return the line, or without its styles where it would move the cursor: names of metrics may be a stranger's."""
    return line if line.plain.isprintable() else Text(printable_line(line.plain))

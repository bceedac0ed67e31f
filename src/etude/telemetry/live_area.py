"""The bottom lines of a terminal, redrawn in place, with room above them for what others print."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO, cast

from rich.console import Console as RichConsole
from rich.text import Text

from etude.files.printable import printable_line


class LiveArea:
    """Draws lines in place at the bottom of a terminal; there is no thread, it draws when called."""

    def __init__(self, stream: TextIO, write: Callable[[str], None]) -> None:
        self._write = write
        self._rich = RichConsole(file=stream, force_terminal=True, highlight=False, legacy_windows=False)
        self._drawn = ""
        self._line_widths: list[int] = []
        self._redirected: list[tuple[str, TextIO, TextIO]] = []
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
        for name in ("stdout", "stderr"):
            current: TextIO = getattr(sys, name)
            if current.isatty():
                above = cast("TextIO", _PrintedAbove(current, self))
                setattr(sys, name, above)
                self._redirected.append((name, current, above))

    def restore_prints(self) -> None:
        """Undo `redirect_prints`, unless someone else has replaced the streams since."""
        for name, original, above in self._redirected:
            cast("_PrintedAbove", above).finish_line()
            if getattr(sys, name) is above:
                setattr(sys, name, original)
        self._redirected.clear()

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


class _PrintedAbove:
    """Stands in for sys.stdout or sys.stderr and hands whole lines to the real one above the live area."""

    def __init__(self, stream: TextIO, area: LiveArea) -> None:
        self._stream = stream
        self._area = area
        self._unfinished = ""

    def write(self, text: str) -> int:
        with self._area.lock:
            whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            if newline:
                self._area.around(lambda: (self._stream.write(whole + newline), self._stream.flush()))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def finish_line(self) -> None:
        if self._unfinished:
            self.write("\n")

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

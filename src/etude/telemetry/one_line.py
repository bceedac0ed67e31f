"""One line of progress, written over again; nothing where the stream is no terminal."""

from __future__ import annotations

import contextlib
import shutil
from typing import TextIO

from etude.files.printable import printable_line
from etude.telemetry.standing_in import StandIns


class OneLine:
    """Shows what is going on and takes it away at the end; what others print meanwhile appears above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._text = ""
        self._replaced = StandIns(self._print_above)

    def __enter__(self) -> OneLine:
        if self._is_shown:
            self._replaced.take_over()
        return self

    def __exit__(self, *problem: object) -> None:
        self.clear()
        self._replaced.give_back(end_line=False)

    def show(self, text: str) -> None:
        """Replace the line."""
        self._text = printable_line(text)[: shutil.get_terminal_size().columns - 1]
        self.draw()

    def clear(self) -> None:
        """Take the line away."""
        self._text = ""
        self.draw()

    def draw(self, text: str | None = None) -> None:
        """Write the line, or another text, over what stands there."""
        if self._is_shown:
            with contextlib.suppress(OSError, ValueError):  # a terminal that is gone
                self._stream.write(f"\r\x1b[K{self._text if text is None else text}")
                self._stream.flush()

    def _print_above(self, stream: TextIO, whole: str) -> None:
        self.draw("")
        stream.write(whole)
        stream.flush()
        self.draw()

"""One line of progress, written over again; nothing where the stream is no terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TextIO, cast

from etude.files.printable import printable_line


class OneLine:
    """Shows what is going on and takes it away at the end; what others print meanwhile appears above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._text = ""
        self._replaced: list[tuple[str, TextIO, TextIO]] = []

    def __enter__(self) -> OneLine:
        for name in ("stdout", "stderr") if self._is_shown else ():
            stream: TextIO = getattr(sys, name)
            if stream.isatty():
                above = cast("TextIO", _Above(stream, self))
                setattr(sys, name, above)
                self._replaced.append((name, stream, above))
        return self

    def __exit__(self, *problem: object) -> None:
        self.clear()
        for name, stream, above in self._replaced:
            cast("_Above", above).finish()
            if getattr(sys, name) is above:
                setattr(sys, name, stream)
        self._replaced.clear()

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


class _Above:
    """Stands in for sys.stdout or sys.stderr: takes the line away for whole lines that are printed, and puts it back below."""

    def __init__(self, stream: TextIO, line: OneLine) -> None:
        self._stream, self._line = stream, line
        self._unfinished = ""

    def write(self, text: str) -> int:
        whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
        if newline:
            self._line.draw("")
            self._stream.write(whole + newline)
            self._stream.flush()
            self._line.draw()
        return len(text)

    def finish(self) -> None:
        """Write what no line break came after."""
        self._stream.write(self._unfinished)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

"""Standing in for sys.stdout and sys.stderr: whole lines that anyone prints are handed on, and the streams put back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TextIO, cast


class StandIn:
    """Looks like `stream`, and hands each text that ends in a line break to `print_whole`; half a line waits."""

    def __init__(self, stream: TextIO, print_whole: Callable[[TextIO, str], None]) -> None:
        self.stream = stream
        self._print_whole = print_whole
        self._unfinished = ""
        self._lock = threading.RLock()  # other threads print too

    def write(self, text: str) -> int:
        """Take a text, as any stream does."""
        with self._lock:
            whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            if newline:
                self._print_whole(self.stream, whole + newline)
        return len(text)

    def flush(self) -> None:
        """Flush the stream itself; half a line still waits."""
        self.stream.flush()

    def finish(self, *, end_line: bool) -> None:
        """Hand on what no line break came after: as a line, or as it is."""
        if self._unfinished and end_line:
            self.write("\n")
        elif self._unfinished:
            self.stream.write(self._unfinished)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class StandIns:
    """Both standard streams, where they are terminals, replaced and put back."""

    def __init__(self, print_whole: Callable[[TextIO, str], None]) -> None:
        self._print_whole = print_whole
        self._replaced: list[tuple[str, StandIn]] = []

    def take_over(self) -> None:
        """From now on, what anyone prints to a terminal goes through `print_whole`."""
        for name in ("stdout", "stderr"):
            stream: TextIO = getattr(sys, name)
            if stream.isatty():
                stand_in = StandIn(stream, self._print_whole)
                setattr(sys, name, cast("TextIO", stand_in))
                self._replaced.append((name, stand_in))

    def give_back(self, *, end_line: bool) -> None:
        """Put the streams back, unless someone else has replaced them since."""
        for name, stand_in in self._replaced:
            stand_in.finish(end_line=end_line)
            if getattr(sys, name) is stand_in:
                setattr(sys, name, stand_in.stream)
        self._replaced.clear()

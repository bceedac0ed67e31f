"""One line of progress, written over again; nothing where the stream is no terminal."""

from __future__ import annotations

import shutil
from typing import TextIO

from etude.files.printable import printable_line


class OneLine:
    """Shows what is going on and takes it away at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()

    def __enter__(self) -> OneLine:
        return self

    def __exit__(self, *problem: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        """Replace the line."""
        self._write(printable_line(text)[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        if self._is_shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

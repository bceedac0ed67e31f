"""The three standard streams as the command line needs them: all there, and able to write any text."""

from __future__ import annotations

import codecs
import os
import sys
import traceback
from types import TracebackType
from typing import TextIO

from etude.files.printable import printable

_PLAIN = {
    "·": "-", "–": "-", "—": "-", "…": "...", "±": "+/-", "×": "x", "→": "->", "←": "<-", "↑": "^", "↓": "v", "★": "*",
    "✓": "+", "✗": "x", "━": "=", "─": "-", "█": "#", "▁": "_", "▂": ".", "▃": ",", "▄": "-", "▅": "=", "▆": "+", "▇": "#",
    "µ": "u",
}  # fmt: skip
_MODES = ("r", "w", "w")


def prepare_streams() -> None:
    """Put /dev/null in place of closed streams, and let every stream write what its encoding has no letters for.

    A closed descriptor would be given to the next file that is opened, and whatever is printed would end up in it.
    """
    codecs.register_error("etude-plain", _plain)
    for descriptor, (name, mode) in enumerate(zip(("stdin", "stdout", "stderr"), _MODES, strict=True)):
        if _is_closed(descriptor):
            _open_null(descriptor)
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            stream = open(descriptor, mode, closefd=False)  # noqa: SIM115 - for the whole life of the process
            setattr(sys, name, stream)
        if mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="etude-plain")  # type: ignore[attr-defined] # asked in the line above
    sys.excepthook = _show_fault


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Spell letters that an encoding lacks: with one of ASCII where there is a likeness, else by their number."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter) or _number(letter) for letter in missing), error.end


def _number(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode("ascii")


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def _open_null(descriptor: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    os.set_inheritable(descriptor, True)


def _show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show a traceback as Python does, but for what its message may do to a terminal."""
    print(printable("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)

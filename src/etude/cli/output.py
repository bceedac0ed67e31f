"""What commands print, in one place: text for people is made safe for their terminal, what programs read stays as it is.

No other module of the command line prints or draws with rich (a test looks), so that none can forget it: names, settings and
messages come from strangers' runs too.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from etude.files.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class OutputClosedError(Exception):
    """Nobody reads stdout any more, as after `| head -1`."""


def say(text: str = "") -> None:
    """Print a result for people to stdout."""
    with _raising_when_closed():
        print(printable(text), flush=True)


def note(text: str) -> None:
    """Print something beside the result to stderr; a stderr that is gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(text), file=sys.stderr, flush=True)


def note_in_place(text: str, *, ends: bool = False) -> None:
    """Write over the last line of stderr, which is a terminal; `ends` leaves the line there."""
    with contextlib.suppress(OSError, ValueError):
        print(f"\r{printable(text)}\x1b[K", end="\n" if ends else "", file=sys.stderr, flush=True)


def emit(text: str) -> None:
    """Write what a program reads to stdout, byte for byte; on a terminal it is made safe as anything else."""
    with _raising_when_closed():
        if sys.stdout.isatty():
            sys.stdout.write(printable(text))
        elif _can_encode(sys.stdout, text):
            sys.stdout.write(text)
        else:  # UTF-8, as in files, whatever the locale; and names of files that are no text at all
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()


def emit_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    emit(json.dumps(value) + "\n")


def emit_path(path: Path) -> None:
    """Write a path for a shell to use."""
    emit(f"{path}\n")


def write_file(path: Path, data: bytes, option: str) -> None:
    """Write a result to the file that an option names, and say so."""
    from etude.errors import UserError
    from etude.files.atomic import write_bytes_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(path, data)
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror or error}") from None
    note(f"wrote {path}")


def drawing(**options: Any) -> Console:
    """Return rich's console on stdout; what is drawn on it consists of `styled` text."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, emoji=False, markup=False, **options)


def styled(*parts: str | tuple[str, str], style: str = "") -> Text:
    """Return text for `drawing`, each part plain or with its own style."""
    from rich.text import Text

    safe = [printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts]
    return Text.assemble(*safe, style=style)


def forget_stdout() -> None:
    """Let go of a stdout that nobody reads: the interpreter would complain of it once more when it ends."""
    import os

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def _raising_when_closed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputClosedError from None

"""A sign of life: what a command is doing in the seconds before it has something to show."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from etude import __version__
from etude.cli.output import note


@contextlib.contextmanager
def starting(what: str, *, quiet: bool = False, plain: bool = True) -> Iterator[Callable[[str], None]]:
    """Say at once what is starting, and then each step of it that is named to what is yielded.

    On a terminal it is one line, gone when the block is left; elsewhere a line each, unless `plain` is False.
    """
    title = f"etude {__version__} · {what}"
    if quiet:
        yield _nothing
    elif not sys.stderr.isatty():
        tell = _tell if plain else _nothing
        tell(f"{title} · starting")
        yield lambda step: tell(f"  {step}")
    else:
        from etude.telemetry.one_line import OneLine

        with OneLine(sys.stderr) as line:
            line.show(f"{title} · starting")
            yield lambda step: line.show(f"{title} · {step}")


def _tell(text: str) -> None:
    note(text)


def _nothing(text: str) -> None:
    pass

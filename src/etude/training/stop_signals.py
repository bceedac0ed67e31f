"""Signals that ask a training to stop: the first saves and stops, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A terminal that is closed, or a connection that is lost, is a SIGHUP; under nohup it is ignored, and stays so.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stopping_on_signals(interrupt: Callable[[str], None], *, quiet: bool = False) -> Iterator[list[int]]:
    """Within, the first SIGINT, SIGTERM or SIGHUP calls `interrupt` with its name; a second one stops at once.

    Yields the list of those that came.
    """
    received: list[int] = []

    def request(number: int, frame: object) -> None:
        received.append(number)
        name = signal.Signals(number).name
        interrupt(name)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if quiet:
            return
        # The terminal may be gone, or in the middle of a print: neither may keep the run from saving itself.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            sys.stderr.write(f"\n{name}: saving and stopping; once more stops at once\n")

    previous = {}
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGINT:
                previous[number] = signal.signal(number, request)
    except ValueError:
        pass  # not the main thread: whoever owns it handles signals
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

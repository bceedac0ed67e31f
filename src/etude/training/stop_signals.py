"""Signals that ask a training to stop: the first saves and stops, the second stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A terminal that is closed, or a connection that is lost, is a SIGHUP; under nohup it is ignored, and stays so.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

ECHO_S = 2.0
"""How long after the first signal another one is the same wish, where two may bring it."""
_echoes = {"expected": False}


def expect_echoes() -> None:
    """Say that a parent passes signals on to this process, which hears twice of a scheduler that signals all processes."""
    _echoes["expected"] = True


@contextmanager
def stopping_on_signals(interrupt: Callable[[str], None], *, quiet: bool = False) -> Iterator[list[int]]:
    """Within, the first SIGINT, SIGTERM or SIGHUP calls `interrupt` with its name; a second one stops at once.

    Yields the list of those that came.
    """
    received: list[int] = []
    first = 0.0

    def stop_at_once(number: int) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    def again(number: int, frame: object) -> None:
        if time.monotonic() - first > ECHO_S:
            stop_at_once(number)
            os.kill(os.getpid(), number)

    def request(number: int, frame: object) -> None:
        nonlocal first
        received.append(number)
        first = time.monotonic()
        name = signal.Signals(number).name
        interrupt(name)
        if _echoes["expected"]:
            signal.signal(number, again)
        else:
            stop_at_once(number)
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

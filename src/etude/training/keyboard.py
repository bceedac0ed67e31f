"""Single keys from the terminal that a run is trained on, without Enter and without an echo.

Read only while this process is in the foreground of a real terminal; Ctrl-C, Ctrl-Z and Ctrl-\\ stay the terminal's own. The
terminal is given back as it was: at the end, before a stop by Ctrl-Z, and at the first signal that asks the run to stop, since
the second one ends it at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

_MOST_KEYS = 64
_SEQUENCE = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?")
"""What an arrow or a function key sends: its letters were not pressed."""
_LOCAL_FLAGS, _SPECIAL = 3, 6
"""Where termios keeps the flags of editing and echoing, and the least that a read waits for."""


class Keyboard:
    """The keys of one terminal, one by one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._as_it_was: list[Any] | None = None
        self._is_over = False

    def pressed(self) -> str:
        """Return what was pressed since the last call; nothing while another process has the terminal."""
        if self._is_over or not self._is_in_foreground():
            return ""
        if self._as_it_was is None:
            self._take()  # it was in the background until now
        keys = b""
        with contextlib.suppress(OSError):  # hung up
            while len(keys) < _MOST_KEYS and select.select([self._descriptor], [], [], 0)[0]:
                read = os.read(self._descriptor, _MOST_KEYS)
                if not read:
                    self._is_over = True  # nobody will press anything any more
                    break
                keys += read
        return _SEQUENCE.sub(b"", keys).decode("ascii", errors="replace")

    def release(self) -> None:
        """Give the terminal back for good; calling it again does nothing."""
        self._is_over = True
        self._give_back()

    def _take(self) -> None:
        with contextlib.suppress(termios.error, OSError):
            if self._as_it_was is None and self._is_in_foreground():
                now = termios.tcgetattr(self._descriptor)
                keyed = [*now]
                keyed[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
                keyed[_SPECIAL] = [*now[_SPECIAL]]
                keyed[_SPECIAL][termios.VMIN], keyed[_SPECIAL][termios.VTIME] = 1, 0
                # Noted first: a signal between the two lines then puts back what was there, which is no harm.
                self._as_it_was = now
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, keyed)

    def _give_back(self) -> None:
        before, self._as_it_was = self._as_it_was, None
        with contextlib.suppress(termios.error, OSError):
            # In the background it is the shell's, which has put its own modes back.
            if before is not None and self._is_in_foreground():
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: stop as any program does, with the terminal as it was, and take it again when brought back."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on, in the foreground or not.
        signal.signal(signal.SIGTSTP, self._suspend)
        if not self._is_over:
            self._take()


@contextmanager
def listening(stream: TextIO | None = None) -> Iterator[Keyboard | None]:
    """Within, keys can be read; None where there is no terminal to read them from."""
    descriptor = _terminal(sys.stdin if stream is None else stream)
    if descriptor is None:
        yield None
        return
    keyboard = Keyboard(descriptor)
    previous: Any = None
    has_handler = False
    try:
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            previous, has_handler = signal.signal(signal.SIGTSTP, keyboard._suspend), True
    except ValueError:  # not the main thread: without it Ctrl-Z would leave the terminal as it is
        yield None
        return
    keyboard._take()
    try:
        yield keyboard
    finally:
        keyboard.release()
        if has_handler:
            signal.signal(signal.SIGTSTP, previous)


def _terminal(stream: TextIO | None) -> int | None:
    """The descriptor of a stream that is a terminal with this process in its foreground."""
    try:
        descriptor = stream.fileno() if stream is not None and not stream.closed else -1
        in_foreground = os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
    except (OSError, ValueError):
        return None
    return descriptor if in_foreground else None

"""Events that a person makes: keys of a terminal, sticks of a gamepad."""

from __future__ import annotations

import importlib
import importlib.util
import os
import select
import sys
from collections.abc import Sequence
from typing import Any

from etude.errors import MissingPackageError, UserError
from etude.robots.driving.driving import KEYS, Event, EventSource, Press, Stick

DEAD_ZONE = 0.1
"""How far a stick may be off its middle and still be there: worn ones never come back to 0."""
STICKS = (1, 0, 3)
"""Axes of a gamepad for forward, sideways and turn: the left stick, and the right one across."""
BUTTONS = {0: "space", 1: "r", 7: "x"}
_ARROWS = {"[A": "up", "[B": "down", "[C": "right", "[D": "left"}


def import_pygame() -> Any:
    """Return pygame, without its greeting; an error says how to install it."""
    if importlib.util.find_spec("pygame") is None:
        raise MissingPackageError("windows and joysticks need pygame: pip install pygame-ce")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    return importlib.import_module("pygame")


class TerminalKeys(EventSource):
    """Keys as they are pressed in the terminal, without Enter; the terminal is as before when closed."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        if not os.isatty(self._descriptor):
            raise UserError("--drive keyboard needs a window or a terminal; --events FILE.yaml drives from a file")
        import termios
        import tty

        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)

    def poll(self, second: float) -> Sequence[Event]:
        """Return the keys that were pressed."""
        text = ""
        while select.select([self._descriptor], [], [], 0)[0]:
            read = os.read(self._descriptor, 64)
            if not read:
                return [Press("x")]  # the terminal is gone
            text += read.decode(errors="ignore")
        return [Press(key) for key in keys_of(text)]

    def close(self) -> None:
        """Let the terminal be as it was."""
        import termios

        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)


def keys_of(text: str) -> list[str]:
    """Return the names of the keys in what a terminal sent: letters, space, arrows, and Escape by itself."""
    keys, place = [], 0
    while place < len(text):
        arrow = _ARROWS.get(text[place + 1 : place + 3]) if text[place] == "\x1b" else None
        name = arrow or {"\x1b": "esc", " ": "space"}.get(text[place], text[place].lower())
        if name in KEYS:
            keys.append(name)
        place += 3 if arrow else 1
    return keys


class Joystick(EventSource):
    """The first gamepad there is. Its sticks are read anew each time; a button counts when it goes down."""

    def __init__(self, device: Any = None) -> None:
        self._pygame = None
        if device is None:
            self._pygame = import_pygame()
            os.environ.setdefault("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
            if not self._pygame.display.get_init():
                _start_without_screen(self._pygame)
            self._pygame.joystick.init()
            if self._pygame.joystick.get_count() == 0:
                raise UserError("--drive joystick: none is connected; --drive keyboard takes keys")
            device = self._pygame.joystick.Joystick(0)
        self._device = device
        if device.get_numaxes() <= max(STICKS):
            raise UserError(f"--drive joystick: {device.get_name()} has {device.get_numaxes()} axes, and two sticks are needed")
        self._last = Stick(0.0, 0.0, 0.0)
        self._down: set[int] = set()

    def poll(self, second: float) -> Sequence[Event]:
        """Return where the sticks are, if they have moved, and the buttons that went down."""
        if self._pygame is not None:
            self._pygame.event.pump()
        events: list[Event] = []
        # Up and left are negative on every pad; ahead and left are positive for a robot.
        stick = Stick(*(0.0 - self._device.get_axis(axis) if self._is_out(axis) else 0.0 for axis in STICKS))
        if stick != self._last:
            events.append(stick)
            self._last = stick
        down = {number for number in BUTTONS if number < self._device.get_numbuttons() and self._device.get_button(number)}
        events += [Press(BUTTONS[number]) for number in sorted(down - self._down)]
        self._down = down
        return events

    def _is_out(self, axis: int) -> bool:
        return abs(self._device.get_axis(axis)) > DEAD_ZONE


def _start_without_screen(pygame: Any) -> None:
    from etude.environments.display import has_display

    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    pygame.display.init()

"""Driving a robot: from keys, sticks and scripts to the velocity that it is asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from etude.config.robots import CommandConfig
from etude.errors import UserError, did_you_mean

Wish = Literal["go on", "begin again", "stop"]
Command = tuple[float, float, float]
"""Forward and sideways in m/s, turn in rad/s; or a goal: m ahead and to the left, and rad to turn left or m to jump."""
STAND: Command = (0.0, 0.0, 0.0)
PRESSES = 4
"""How often a key is pressed from standing to the fastest that the task asks for."""
MOVES = {
    "w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1), "q": (2, 1), "e": (2, -1),
    "up": (0, 1), "down": (0, -1), "left": (2, 1), "right": (2, -1),
}  # fmt: skip
"""Which of the three numbers a key changes, and which way."""
WISHES: dict[str, Wish] = {"r": "begin again", "x": "stop", "esc": "stop"}
KEYS = (*MOVES, "space", *WISHES)
HELP = "w s: forward, back · a d: sideways · q e: turn · space: stand · r: begin again · x: stop"
PLACE_STEP, TURN_STEP = 1.0, math.pi / 4
"""What a key adds to where a robot is, where commands are places: metres, and radians of a pose."""


@dataclass(frozen=True)
class Press:
    """A key was pressed, by its name in KEYS."""

    key: str


@dataclass(frozen=True)
class Stick:
    """Where a stick is, as shares of what the task asks for: each from -1 to 1."""

    forward: float
    sideways: float
    turn: float


@dataclass(frozen=True)
class Ask:
    """A command itself."""

    command: Command


Event = Press | Stick | Ask


class EventSource(ABC):
    """Where events come from: a keyboard, a joystick, a file, a test."""

    is_live: bool = True
    """Whether a person makes them, for whom the robot must move in real time."""

    @abstractmethod
    def poll(self, second: float) -> Sequence[Event]:
        """Return what has happened up to this second of the robot's own time, in order; never waits."""

    def close(self) -> None:  # noqa: B027 # most have nothing to give back
        """Give back what was taken."""


class Driver:
    """Keeps the command that events ask for, within the ranges that the task draws from; standing is always possible."""

    def __init__(self, config: CommandConfig) -> None:
        self._ranges = (config.forward, config.sideways, config.turn)
        self.command: Command = STAND
        self.asks = 0
        """How often a command was asked for that is one anew, even if it is the same."""

    def take(self, event: Event) -> Wish:
        """Change the command by an event, and return what else was wished for."""
        if isinstance(event, Press):
            return self._press(event.key)
        if isinstance(event, Stick):
            self.command = self._of_stick(event)
        else:
            self.command = self._limited(event.command) if any(event.command) else STAND
        return "go on"

    def _of_stick(self, stick: Stick) -> Command:
        shares = (stick.forward, stick.sideways, stick.turn)
        asked = [share * abs(bounds[share > 0]) for share, bounds in zip(shares, self._ranges, strict=True)]
        return self._limited(asked) if any(asked) else STAND

    def _press(self, key: str) -> Wish:
        if key == "space":
            self.command = STAND
        elif key in MOVES:
            which, way = MOVES[key]
            step = max(map(abs, self._ranges[which])) / PRESSES
            asked = list(self.command)
            asked[which] = self._limit(which, asked[which] + way * step)
            forward, sideways, turn = asked
            self.command = (forward, sideways, turn)
        return WISHES.get(key, "go on")

    def _limited(self, asked: Sequence[float]) -> Command:
        forward, sideways, turn = (self._limit(which, value) for which, value in enumerate(asked))
        return forward, sideways, turn

    def _limit(self, which: int, value: float) -> float:
        low, high = self._ranges[which]
        return round(min(max(value, low), high), 6) + 0.0  # steps back and forth come back to exactly 0, and never to -0


class GoalDriver(Driver):
    """Keeps the place, the pose or the jump that events ask for, seen from where the robot is when it is asked.

    A key asks for a place a step that way; space for this one. In a task of jumps, keys ask for jumps of middling height, as
    far as the task draws them.
    """

    def __init__(self, config: CommandConfig) -> None:
        super().__init__(config)
        self._config = config

    def take(self, event: Event) -> Wish:
        """Every event that asks for something asks anew, even if it is for the same."""
        if not isinstance(event, Press) or event.key == "space" or event.key in MOVES:
            self.asks += 1
        return super().take(event)

    def _of_stick(self, stick: Stick) -> Command:
        return self._toward(stick.forward, stick.sideways, stick.turn)

    def _press(self, key: str) -> Wish:
        if key == "space":
            self.command = STAND
        elif key in MOVES:
            which, way = MOVES[key]
            forward, sideways, turn = (float(way) if axis == which else 0.0 for axis in range(3))
            self.command = self._toward(forward, sideways, turn)
        return WISHES.get(key, "go on")

    def _toward(self, forward: float, sideways: float, turn: float) -> Command:
        if not (forward or sideways or turn):
            return STAND
        if self._config.goal != "jump":
            return self._limited((PLACE_STEP * forward, PLACE_STEP * sideways, TURN_STEP * turn))
        jump = self._config.jump
        angle = jump.angle * max(-1.0, min(1.0, sideways))
        far = jump.distance[1] * min(1.0, math.hypot(max(forward, 0.0), sideways))
        return self._limited((far * math.cos(angle), far * math.sin(angle), sum(jump.height) / 2))

    def _limited(self, asked: Sequence[float]) -> Command:
        ahead, left, third = asked
        config = self._config
        jumps = config.goal == "jump"
        farthest = (config.jump.distance if jumps else config.distance)[1]
        near = min(1.0, farthest / max(math.hypot(ahead, left), 1e-9))
        most = {"pose": config.arrival, "jump": config.jump.height[1]}.get(config.goal, 0.0)
        least = config.jump.height[0] if jumps else -most
        return round(ahead * near, 6) + 0.0, round(left * near, 6) + 0.0, round(min(max(third, least), most), 6) + 0.0


def driver_of(config: CommandConfig) -> Driver:
    """Return what drives robots of a task."""
    return Driver(config) if config.goal == "velocity" else GoalDriver(config)


class ScriptedEvents(EventSource):
    """Events at given seconds; the last one must be the wish to stop, so that it is known how long they last."""

    is_live = False

    def __init__(self, events: Sequence[tuple[float, Event]]) -> None:
        self._events = sorted(events, key=lambda timed: timed[0])
        self._next = 0

    def poll(self, second: float) -> Sequence[Event]:
        """Return the events that are due."""
        first = self._next
        while self._next < len(self._events) and self._events[self._next][0] <= second + 1e-9:
            self._next += 1
        return [event for _, event in self._events[first : self._next]]


def read_events(data: Any, where: str) -> ScriptedEvents:
    """Read events from plain data: a list of {time, key} or {time, command: [forward, sideways, turn]}."""
    if not isinstance(data, list) or not data:
        raise UserError(f"{where}: must be a list of events, such as {{time: 0.5, key: w}}")
    events = [_read_event(entry, f"{where}: event {number}") for number, entry in enumerate(data, 1)]
    if not any(isinstance(event, Press) and WISHES.get(event.key) == "stop" for _, event in events):
        raise UserError(f"{where}: must end with {{time: ..., key: x}}, so that it is known how long it lasts")
    return ScriptedEvents(events)


def _read_event(entry: Any, where: str) -> tuple[float, Event]:
    if not isinstance(entry, Mapping) or "time" not in entry or ("key" in entry) == ("command" in entry):
        raise UserError(f"{where}: must be {{time, key}} or {{time, command: [forward, sideways, turn]}}, not {entry}")
    for name in entry:
        if name not in ("time", "key", "command"):
            raise UserError(f"{where}: unknown option '{name}' (known: time, key, command)")
    time = entry["time"]
    if not _is_number(time) or time < 0:
        raise UserError(f"{where}: time={time}: must be a number of seconds, at least 0")
    if "key" in entry:
        key = str(entry["key"]).lower() or "space"
        key = {" ": "space", "escape": "esc"}.get(key, key)
        if key not in KEYS:
            raise UserError(f"{where}: key={entry['key']}: unknown key{did_you_mean(key, KEYS)} (known: {', '.join(KEYS)})")
        return float(time), Press(key)
    command = entry["command"]
    if not isinstance(command, list) or len(command) != 3 or not all(map(_is_number, command)):
        raise UserError(f"{where}: command={command}: must be three numbers, [forward, sideways, turn]")
    forward, sideways, turn = map(float, command)
    return float(time), Ask((forward, sideways, turn))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

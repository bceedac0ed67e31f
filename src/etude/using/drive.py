"""Driving a run's robot while it is played: events change what it is asked for, and what it does with that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from etude.errors import UserError
from etude.orchestration.player import Moment
from etude.robots.driving.driving import Command, EventSource, Wish, driver_of
from etude.robots.driving.window import RobotWindow
from etude.robots.environment import RobotVector
from etude.robots.state import State
from etude.using.play import Stage


@dataclass(frozen=True)
class Stretch:
    """Seconds with one command, and how the robots moved then: means over steps and robots."""

    begin: float
    end: float
    command: Command
    velocity: Command
    left: Command | None = None
    """Of a goal: what is left of it at the end, as the robots see it; the mean."""

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        plain = {"from": self.begin, "to": self.end, "command": list(self.command), "velocity": list(self.velocity)}
        return plain if self.left is None else {**plain, "left": list(self.left)}


class Drive:
    """Steers the robots of a stage; `before_step` and `on_step` are what `play_episodes` calls around every step.

    A window shows them. Where no `source` of commands is given, the task's own stand.
    """

    def __init__(
        self,
        stage: Stage,
        source: EventSource | None,
        *,
        window: RobotWindow | None = None,
        on_stretch: Callable[[Stretch], None] | None = None,
    ) -> None:
        self._robots = robots_of(stage)
        self._stage, self._source, self._window, self._on_stretch = stage, source, window, on_stretch
        first = self._robots[0]
        self._dt, self._driver = first.dt, driver_of(first.task.commands)
        self._steps = 0
        self.stretches: list[Stretch] = []
        self._begin = 0
        self._moved: list[torch.Tensor] = []
        self._asked, self._asks, self._moved_on = self._driver.command, 0, False
        is_live = window is not None or (source is not None and source.is_live)
        self._clock = _Clock(self._dt) if is_live else None
        for robot in self._robots:
            robot.listener = self._note
        self._ask()

    def before_step(self) -> Wish:
        """Take in what has happened since the last step; returns whether to go on."""
        self._let_time_pass()
        wish: Wish = "go on"
        for source in dict.fromkeys((self._window, self._source)):  # a window may be both
            for event in () if source is None else source.poll(self._steps * self._dt):
                wished = self._driver.take(event)
                wish = wish if wished == "go on" else wished
        if self._source is not None and (self._driver.command, self._driver.asks) != (self._asked, self._asks):
            self._end_stretch()
            self._ask()
        return wish

    def on_step(self, moment: Moment) -> None:
        """Note that a robot has moved; several do before time passes for all of them."""
        self._moved_on = True

    def _let_time_pass(self) -> None:
        if not self._moved_on:
            return
        self._moved_on = False
        self._steps += 1
        if self._window is not None:
            picture = self._stage.players[0].picture
            assert picture is not None, "a window needs pictures"
            self._window.show(picture, self._line())
        if self._clock is not None:
            self._clock.wait()

    def close(self) -> None:
        """End the last stretch, and let the robots be."""
        self._steps += self._moved_on
        self._end_stretch()
        for robot in self._robots:
            robot.listener = None
            robot.commands.ask(None)

    def _note(self, state: State) -> None:
        turn = state.base_angular_velocity[:, 2:]
        self._moved.append(torch.cat([state.base_linear_velocity[:, :2], turn], 1).mean(0))

    def _ask(self) -> None:
        self._asked, self._asks = self._driver.command, self._driver.asks
        if self._source is not None:
            for robot in self._robots:
                robot.commands.ask(torch.tensor(self._asked))

    def _end_stretch(self) -> None:
        if self._source is None or not self._moved:
            return
        forward, sideways, turn = torch.stack(self._moved).nan_to_num().mean(0).tolist()
        moved = (forward, sideways, turn)
        stretch = Stretch(self._begin * self._dt, self._steps * self._dt, self._asked, moved, self._what_is_left())
        self._begin, self._moved = self._steps, []
        self.stretches.append(stretch)
        if self._on_stretch is not None:
            self._on_stretch(stretch)

    def _what_is_left(self) -> Command | None:
        first = self._robots[0]
        if first.commands.goals is None:
            return None
        seen = [robot.commands.goals.command(robot.state) for robot in self._robots if robot.commands.goals is not None]
        ahead, aside, third = torch.cat(seen).nan_to_num().mean(0).tolist()
        return ahead, aside, third

    def _line(self) -> str:
        robot = self._robots[0]
        if robot.commands.goals is not None:
            ahead, aside, third = robot.memory.command[0].tolist()
            last = {"pose": f"   turn {third:+.2f}", "jump": f"   up {third:+.2f}"}.get(robot.state.goal, "")
            return f"ahead {ahead:+.2f}   left {aside:+.2f}{last}"
        asked = robot.memory.command[0].tolist()
        done = self._moved[-1].tolist() if self._moved else [0.0] * 3
        return "   ".join(
            f"{name} {does:+.2f} of {wanted:+.2f}"
            for name, does, wanted in zip(("forward", "sideways", "turn"), done, asked, strict=True)
        )


def robots_of(stage: Stage) -> Sequence[RobotVector]:
    """Return the robots of a stage; a stage of anything else is an error."""
    found = []
    for player in stage.players:
        base = player.environment.base
        if not isinstance(base, RobotVector):
            config = stage.policy.config.environment
            raise UserError(f"{stage.policy.name} is of {config.id}, which can't be driven; robots can")
        found.append(base)
    return found


class _Clock:
    """Waits so that steps take as long as they do for a robot; time that was lost is not made up for."""

    def __init__(self, dt: float) -> None:
        self._dt, self._due = dt, time.perf_counter() + dt

    def wait(self) -> None:
        now = time.perf_counter()
        if now < self._due:
            time.sleep(self._due - now)
        self._due = max(self._due, now) + self._dt

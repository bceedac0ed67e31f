"""Robots that are inspected walk as somebody commands, a few steps at a time, without a limit of time."""

from __future__ import annotations

from typing import Any

import torch

from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.using.play import ENDLESS

Command = tuple[float, float, float]
"""Forward and sideways in m/s, turn in rad/s."""
FASTEST = 1e6
NAMES = ("forward", "sideways", "turn")


class Pilot:
    """Says what the robot of an inspection is asked for: somebody's command, or what its task draws."""

    def __init__(self, robots: Any) -> None:
        self._robots, self._limit = robots, robots.episode_steps

    @classmethod
    def of(cls, environment: VectorEnvironment) -> Pilot | None:
        """Return the pilot of an environment; None where no velocity can be commanded."""
        base: Any = environment.base
        is_robot = hasattr(base, "commands") and hasattr(base, "task")
        return cls(base) if is_robot and base.task.commands.goal == "velocity" else None

    def hold(self, command: Command | None) -> None:
        """Ask for this from the next step on; None lets the task draw commands, and limits its time again."""
        self._robots.commands.fixed = None if command is None else torch.tensor(command, device=self._robots.device)
        self._robots.episode_steps = self._limit if command is None else ENDLESS

    def limited(self, asked: Any) -> Command:
        """Return a command within the ranges that the task draws from; UserError where it is none."""
        from etude.robots.driving.driving import Ask, Driver

        is_command = isinstance(asked, list) and len(asked) == len(NAMES)
        if not is_command or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in asked):
            raise UserError("command: must be three numbers, [forward, sideways, turn]")
        if not all(abs(each) <= FASTEST for each in asked):
            raise UserError(f"command: must be numbers from −{FASTEST:g} to {FASTEST:g}")
        driver = Driver(self._robots.task.commands)
        driver.take(Ask((float(asked[0]), float(asked[1]), float(asked[2]))))
        return driver.command

    def velocity(self) -> list[float]:
        """Return how the robot moves: forward, sideways, turn."""
        state = self._robots.state
        moves = torch.cat([state.base_linear_velocity[0, :2], state.base_angular_velocity[0, 2:]])
        return moves.nan_to_num().tolist()

    def facts(self) -> dict[str, Any]:
        """Return what can be asked for, how long a step lasts, and how much a press of a key adds."""
        from etude.robots.driving.driving import PRESSES

        commands = self._robots.task.commands
        ranges = {name: list(getattr(commands, name)) for name in NAMES}
        steps = {name: max(map(abs, bounds)) / PRESSES for name, bounds in ranges.items()}
        return {"ranges": ranges, "presses": steps, "seconds_per_step": self._robots.dt}

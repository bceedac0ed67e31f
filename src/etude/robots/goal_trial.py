"""Trials of tasks that ask for goals: what is asked of places, poses and jumps, and what there is to measure of the ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from etude.config.robots import CommandConfig, Goal
from etude.robots.goals import heading_error
from etude.robots.state import State

Row = tuple[float, float, float]


@dataclass(frozen=True)
class GoalResult:
    """How robots did with the last goal of a trial; means over robots."""

    kind: Goal
    asked: Row
    """Metres ahead and to the left of where each robot was, and radians to turn left, or metres to jump."""
    distance: float
    """Between the robots and their places at the end, m."""
    heading_error: float | None
    """Of poses: how far off their headings they are at the end, rad."""
    reached: float
    """Share of robots that are there at the end, within the task's tolerances; of jumps, that have jumped."""
    seconds: float | None
    """How long those took that reached it, from the command on; of jumps none."""
    height: float | None = None
    """By how much the bases rose, of those that jumped, m."""
    length: float | None = None
    """How far from their start they came down, m."""
    landing_error: float | None = None
    """How far from the place to land at they came down, m."""


def goal_scripts(config: CommandConfig) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return trials by their names: rows of (second, ahead, left, turn or height), within what the task draws."""
    if config.goal == "jump":
        near, far = config.jump.distance
        low, high = config.jump.height
        side = config.jump.angle
        middle, medium = (near + far) / 2, (low + high) / 2
        stands = (0.0, 0.0, 0.0, 0.0)
        return {
            "stand": [stands],
            "up": [stands, (1, near, 0, medium)],
            "ahead": [stands, (1, middle, 0, medium)],
            "far": [stands, (1, far, 0, high)],
            "low": [stands, (1, middle, 0, low)],
            "aside": [stands, (1, middle * math.cos(side), middle * math.sin(side), medium)],
        }
    far = min(max(2.0, config.distance[0]), config.distance[1])
    turn = min(math.pi / 2, config.arrival) if config.goal == "pose" else 0.0
    plain = {
        "stand": [(0, 0, 0, 0)],
        "ahead": [(0, far, 0, 0)],
        "back": [(0, -far, 0, 0)],
        "left": [(0, 0, far, 0)],
        "right": [(0, 0, -far, 0)],
    }
    if config.goal == "position":
        return plain | {"two": [(0, far / 2, 0, 0), (4, 0, -far / 2, 0)]}
    return plain | {"turn": [(0, 0, 0, turn)], "ahead, turned": [(0, far, 0, turn)], "back, turned": [(0, -far, 0, -turn)]}


class GoalWatch:
    """Notes how far robots are from their goals in every step, as it was before any began again."""

    def __init__(self, config: CommandConfig, dt: float) -> None:
        self._config, self._dt = config, dt
        self._distance: list[Tensor] = []
        self._turn: list[Tensor] = []
        self._last: dict[str, Tensor] = {}
        self._asked_at = 0

    def ask(self) -> None:
        """Begin to count for another goal."""
        self._asked_at = len(self._distance)

    def note(self, state: State) -> None:
        """Take in one step."""
        memory = state.memory
        self._distance.append((memory.goal - state.base_position[:, :2]).norm(dim=-1))
        self._turn.append(heading_error(state).abs())
        self._last = {name: getattr(memory, name).clone() for name in ("has_jumped", "apex", "jump_length", "jump_off")}

    def result(self, asked: Row) -> GoalResult:
        """Return how it has come out by now."""
        config, last = self._config, self._last
        distance, turn = self._distance[-1], self._turn[-1]
        if config.goal == "jump":
            done = last["has_jumped"]
            means = [
                float(last[name][done].mean()) if bool(done.any()) else None for name in ("apex", "jump_length", "jump_off")
            ]
            return GoalResult("jump", asked, float(distance.mean()), None, float(done.float().mean()), None, *means)
        there = self._there(distance, turn)
        return GoalResult(
            kind=config.goal,
            asked=asked,
            distance=float(distance.mean()),
            heading_error=float(turn.mean()) if config.goal == "pose" else None,
            reached=float(there.float().mean()),
            seconds=self._seconds(there),
        )

    def _there(self, distance: Tensor, turn: Tensor) -> Tensor:
        there = distance <= self._config.reached
        return there & (turn <= self._config.facing) if self._config.goal == "pose" else there

    def _seconds(self, there: Tensor) -> float | None:
        """The mean of how long it took those who are there to come there and stay."""
        if not bool(there.any()):
            return None
        distance, turn = (torch.stack(rows[self._asked_at :]) for rows in (self._distance, self._turn))  # (T, N)
        steps = torch.arange(1, len(distance) + 1)[:, None]
        last_away = (~self._there(distance, turn) * steps).amax(0)
        return float(last_away[there].float().mean()) * self._dt

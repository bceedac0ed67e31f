"""Crossings: robots in the middle of tiles of one kind and level, who are to walk off them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from etude.robots.environment import RobotVector
from etude.robots.rotations import wrap
from etude.robots.terrain import Levels
from etude.robots.trial import Act


@dataclass(frozen=True)
class Crossing:
    """How robots did on one kind of ground."""

    kind: str
    level: int
    """From 0, the easiest."""
    robots: int
    crossed: int
    """Robots that walked off their tile before they fell, in time."""
    falls: int
    """Robots that fell before they were off it."""
    seconds: float | None
    """The median of those who crossed."""

    def as_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


def run_crossing(
    environment: RobotVector,
    act: Act,
    kind: str,
    level: int,
    *,
    speed: float,
    seconds: float,
    seed: int,
    look: Callable[[], None] | None = None,
) -> Crossing:
    """Ask every robot to walk straight off its tile, in the direction that it begins in; `look` is called at every step."""
    levels, commands, state = environment.levels, environment.commands, environment.state
    assert isinstance(levels, Levels), "crossings are of tiles"
    count = environment.num_envs
    levels.hold(kind, level)
    observation, _ = environment.reset([seed + i for i in range(count)])
    origin, heading = levels.origin.clone(), state.yaw.clone()
    is_first, under_way = (torch.ones(count, dtype=torch.bool) for _ in range(2))
    took, falls = torch.full((count,), torch.nan), 0
    config, half = environment.task.commands, levels.terrain.config.tile / 2
    way = torch.zeros(count, 3)
    positions: list[Tensor] = []
    environment.listener = lambda state: positions.append(state.base_position[:, :2].clone())
    try:
        for step in range(round(seconds / environment.dt)):
            turn = config.heading_stiffness * wrap(heading - state.yaw)
            way[:, 0], way[:, 2] = speed, turn.clamp(*config.turn)
            commands.fixed = way
            done = environment.step(act(observation, is_first))
            off = under_way & ((positions.pop() - origin).norm(dim=-1) > half) & ~done.terminated
            took[off] = (step + 1) * environment.dt
            falls += int((under_way & done.terminated).sum())
            observation, is_first = done.observation, done.terminated | done.truncated
            under_way &= ~off & ~is_first
            if look is not None:
                look()
            if not bool(under_way.any()):
                break
    finally:
        commands.fixed, environment.listener = None, None
    crossed = took[took.isfinite()]
    return Crossing(kind, level, count, len(crossed), falls, float(crossed.median()) if len(crossed) else None)

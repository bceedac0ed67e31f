"""What robots are asked for that is no velocity: a place to go to, a pose to take there, a jump to land somewhere.

A jump is a timetable. With h the rise that is asked for, and e how much higher the ground is where it lands:

    asked ── crouch_s ──→ take-off ── √(2h/g) ──→ apex ── √(2(h − e)/g) ──→ landing ──→ stand until the next command
    jump_time < 0         0                                                 jump_flight
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from etude.config.robots import GRAVITY, WELL_THERE, CommandConfig, Range
from etude.errors import UserError
from etude.robots.driving.drawing import Mark
from etude.robots.rotations import from_yaw, rotate, rotate_inverse, wrap
from etude.robots.state import State

LEAST_FLIGHT = 0.08
"""Seconds without a foot on the ground from which on that was a jump, and no stumble."""
EARLY_S = 0.1
"""Seconds before the take-off that is asked for from which on a flight counts: to hop instead of crouching is no jump."""
SETTLE_S = 0.5
"""Seconds after the landing is due at which a jump is told of."""
LEAST_CLEARANCE = 0.05
"""Metres by which a jump onto something rises above it."""
Within = Callable[[Range, Tensor], Tensor]


class Goals:
    """Draws goals for all robots at once, and says where they are, seen from the robots."""

    def __init__(self, config: CommandConfig, state: State) -> None:
        self.config = config
        self.asked: Tensor | None = None
        """A goal for every robot in place of those that are drawn, (N, 3) or (3,), seen from where it is when it is asked."""
        if config.goal == "jump" and not state.scene.feet:
            raise UserError("environment.robot.commands.goal=jump: this robot has no feet to jump with (its YAML names them)")

    def draw(self, state: State, which: Tensor, u: Tensor, within: Within) -> None:
        """Give the robots `which` (N,) new goals; `u` (8, N) are uniform numbers, and who is to stand stays where it is."""
        wanted = self._wanted(state, u, within)
        memory, chosen = state.memory, which[:, None]
        ahead = torch.cat([wanted[:, :2], torch.zeros_like(wanted[:, :1])], 1)
        place = state.base_position[:, :2] + rotate(from_yaw(state.yaw), ahead)[:, :2]
        memory.goal.copy_(torch.where(chosen, place, memory.goal))
        if self.config.goal == "pose":
            memory.heading.copy_(torch.where(which, wrap(state.yaw + wanted[:, 2]), memory.heading))
        elif self.config.goal == "jump":
            self._begin_jump(state, which, place, wanted[:, 2])

    def _wanted(self, state: State, u: Tensor, within: Within) -> Tensor:
        """Return goals as they are seen from the robots: ahead, to the left, and how to turn or how high. (N, 3)"""
        config, jump = self.config, self.config.jump
        if self.asked is not None:
            return self.asked.to(u).expand(state.count, 3)
        if config.goal == "jump":
            distance, angle, third = within(jump.distance, u[0]), jump.angle * (2 * u[1] - 1), within(jump.height, u[2])
        else:
            distance, angle = within(config.distance, u[0]), 2 * torch.pi * u[1]
            third = config.arrival * (2 * u[5] - 1) * (config.goal == "pose")
        wanted = torch.stack([distance * angle.cos(), distance * angle.sin(), third], 1)
        return torch.where((u[4] < config.standing)[:, None], 0.0, wanted)

    def _begin_jump(self, state: State, which: Tensor, place: Tensor, height: Tensor) -> None:
        memory, terrain = state.memory, state.terrain
        here = state.base_position[:, :2]
        ground = torch.zeros_like(height) if terrain is None else terrain.height(here)
        rise = torch.zeros_like(height) if terrain is None else terrain.height(place) - ground
        least = torch.maximum(height, (rise + LEAST_CLEARANCE).clamp(min=0))
        height = torch.where(height > 0, least, 0.0)
        flight = (2 * height / GRAVITY).sqrt() + (2 * (height - rise).clamp(min=0) / GRAVITY).sqrt()
        began = {
            "jump_height": height,
            "jump_flight": torch.where(height > 0, flight, 0.0),
            "jump_time": torch.full_like(height, -self.config.jump.crouch_s),
            "jump_yaw": state.yaw,
            **dict.fromkeys(("apex", "flown", "jump_length", "jump_off"), torch.zeros_like(height)),
        }
        for name, value in began.items():
            kept = getattr(memory, name)
            kept.copy_(torch.where(which, value, kept))
        # Who stands tall has not risen yet; at the start of an episode robots hang a little over the ground.
        tall = torch.where(memory.age > 0, state.base_position[:, 2] - ground - state.standing_height, 0.0).clamp(min=0)
        start = torch.cat([here, (ground + state.standing_height + tall)[:, None]], 1)
        memory.jump_from.copy_(torch.where(which[:, None], start, memory.jump_from))
        memory.has_jumped.logical_and_(~which)

    def watch(self, state: State) -> None:
        """Note how the jumps under way have gone on in this step."""
        if self.config.goal != "jump":
            return
        memory = state.memory
        memory.jump_time.add_(state.dt * (memory.jump_height > 0))
        asked = (memory.jump_height > 0) & (memory.jump_time >= -EARLY_S)
        flies = ~state.feet_in_contact.any(-1)
        landed = asked & ~flies & ~memory.has_jumped & (memory.flown >= LEAST_FLIGHT - 1e-6)
        place = state.base_position[:, :2]
        length, off = (place - memory.jump_from[:, :2]).norm(dim=-1), (place - memory.goal).norm(dim=-1)
        memory.jump_length.copy_(torch.where(landed, length, memory.jump_length))
        memory.jump_off.copy_(torch.where(landed, off, memory.jump_off))
        memory.has_jumped.logical_or_(landed)
        rise = state.base_position[:, 2] - memory.jump_from[:, 2]
        counts = asked & flies & ~memory.has_jumped
        stumbled = asked & ~flies & ~memory.has_jumped  # what it rose by so far was no jump
        memory.apex.copy_(torch.where(counts, torch.maximum(memory.apex, rise), torch.where(stumbled, 0.0, memory.apex)))
        memory.flown.copy_(torch.where(asked & flies, memory.flown + state.dt, 0.0))

    def command(self, state: State) -> Tensor:
        """Return the goals as robots see them now, (N, 3): 0 once they are well there, or have landed."""
        memory, config = state.memory, self.config
        away = memory.goal - state.base_position[:, :2]
        seen = rotate_inverse(from_yaw(state.yaw), torch.cat([away, torch.zeros_like(away[:, :1])], 1))
        if config.goal == "jump":
            seen[:, 2] = memory.jump_height
            return seen * (memory.jump_time < memory.jump_flight)[:, None]
        seen = seen * (away.norm(dim=-1, keepdim=True) > WELL_THERE * config.reached)
        if config.goal == "pose":
            turn = heading_error(state)
            seen[:, 2] = turn * (turn.abs() > WELL_THERE * config.facing)
        return seen

    def marks(self, state: State, robot: int) -> list[Mark]:
        """Return what a picture of a robot shows of its goal; reads the device."""
        memory, goal = state.memory, self.config.goal
        if goal == "jump" and not bool(memory.jump_height[robot] > 0):
            return []
        ground = 0.0 if state.terrain is None else float(state.terrain.height(memory.goal[robot]))
        x, y = memory.goal[robot].tolist()
        yaw = float(memory.heading[robot]) if goal == "pose" else None
        height = float(memory.jump_from[robot, 2] + memory.jump_height[robot]) - ground if goal == "jump" else None
        return [Mark((x, y, ground), yaw, height)]

    def told(self, state: State) -> dict[str, Tensor]:
        """Return what is to be logged, (N,) each: how far goals are, and how the jumps went that are due in this step."""
        memory = state.memory
        if self.config.goal != "jump":
            told = {"error/distance": (memory.goal - state.base_position[:, :2]).norm(dim=-1)}
            return told | ({"error/heading": heading_error(state).abs()} if self.config.goal == "pose" else {})
        late = memory.jump_time - memory.jump_flight - SETTLE_S
        due = (memory.jump_height > 0) & (late >= -1e-6) & (late < state.dt - 1e-6)
        done = (due & memory.has_jumped).float()
        return {
            "jump/due": due.float(),
            "jump/done": done,
            "jump/height": done * memory.apex,
            "jump/asked_height": due * memory.jump_height,
            "jump/off": done * memory.jump_off,
        }


def heading_error(state: State) -> Tensor:
    """Return how far robots are to turn left to head the way that they are asked to, in [−π, π). (N,)"""
    return wrap(state.memory.heading - state.yaw)


def means_of_jumps(metrics: dict[str, float]) -> dict[str, float]:
    """Return how many of the jumps that were due were done, and means over these; nothing where none was due."""
    due, done = metrics.get("jump/due", 0.0), metrics.get("jump/done", 0.0)
    if not due > 0:
        return {}
    means = {"jump_share": done / due, "jump_asked_height": metrics["jump/asked_height"] / due}
    return means | ({"jump_height": metrics["jump/height"] / done, "jump_off": metrics["jump/off"] / done} if done > 0 else {})

"""Terms of a task that asks for jumps (commands.goal=jump): crouch, fly as what is thrown, and stand, all in time."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.config.constraints import PositiveFloat
from etude.config.robots import GRAVITY
from etude.errors import UserError
from etude.robots.rotations import wrap
from etude.robots.state import Memory, State
from etude.robots.terms.observations import OBSERVATIONS
from etude.robots.terms.rewards import REWARDS


def _jump(state: State, term: str) -> Memory:
    if state.goal != "jump":
        raise UserError(f"environment.robot: {term} is of tasks that ask for jumps (environment.robot.commands.goal=jump)")
    return state.memory


def _is_due_to_fly(memory: Memory) -> Tensor:
    """(N,) bool"""
    return (memory.jump_height > 0) & (memory.jump_time >= 0) & (memory.jump_time < memory.jump_flight)


def _is_due_to_have_landed(memory: Memory) -> Tensor:
    """(N,) bool"""
    return (memory.jump_height > 0) & (memory.jump_time >= memory.jump_flight)


def _take_off_speed(memory: Memory) -> Tensor:
    """Upward, by which a base rises so high: (N,)"""
    return (2 * GRAVITY * memory.jump_height).sqrt()


@OBSERVATIONS.add_for_feet()
def jump_clock(state: State) -> Tensor:
    """Seconds until the take-off, which share of the flight is over, seconds since, at most 1; 0 while no jump is asked for"""
    memory = _jump(state, "jump_clock")
    time, flight = memory.jump_time, memory.jump_flight
    parts = [(-time).clamp(min=0), (time / flight.clamp(min=1e-3)).clamp(0, 1), (time - flight).clamp(0, 1)]
    return torch.stack(parts, 1) * (memory.jump_height > 0)[:, None]


@REWARDS.add_for_feet()
def jump_feet(state: State) -> Tensor:
    """The share of feet off the ground while a jump is due to fly; at all other times the share that stands"""
    memory = _jump(state, "jump_feet")
    stand = state.feet_in_contact.float().mean(-1)
    return torch.where(_is_due_to_fly(memory), 1 - stand, stand)


@REWARDS.add_for_feet()
def jump_arc(state: State, width: PositiveFloat = 0.1) -> Tensor:
    """exp(−(rise − (v₀t − gt²/2))² / width²), v₀ = √(2gh), while a jump is due to fly: the base moves as what is thrown"""
    memory = _jump(state, "jump_arc")
    time = memory.jump_time
    wanted = _take_off_speed(memory) * time - 0.5 * GRAVITY * time.square()
    rise = state.base_position[:, 2] - memory.jump_from[:, 2]
    return torch.exp(-(rise - wanted).square() / width**2) * _is_due_to_fly(memory)


@REWARDS.add_for_feet()
def jump_velocity(state: State) -> Tensor:
    """max(0, 1 − |v − v_ref| / v₀) while a jump is due to fly: v_ref is that of what is thrown to the place to land at"""
    memory = _jump(state, "jump_velocity")
    first = state.scene.base_dof
    way = (memory.goal - memory.jump_from[:, :2]) / memory.jump_flight.clamp(min=1e-3)[:, None]
    speed = _take_off_speed(memory)
    wanted = torch.cat([way, (speed - GRAVITY * memory.jump_time)[:, None]], 1)
    off = (state.simulation.qvel[:, first : first + 3] - wanted).norm(dim=-1)
    # Not a bell: one who stands is far from the speed of a take-off, and is to feel every bit of it.
    return (1 - off / speed.clamp(min=1e-3)).clamp(min=0) * _is_due_to_fly(memory)


@REWARDS.add_for_feet()
def jump_height(state: State, width: PositiveFloat = 0.1) -> Tensor:
    """exp(−(apex − h)² / width²) for who has jumped, from when the landing is due: as high as asked"""
    memory = _jump(state, "jump_height")
    off = memory.jump_height - memory.apex
    return torch.exp(-off.square() / width**2) * (memory.has_jumped & _is_due_to_have_landed(memory))


@REWARDS.add_for_feet()
def jump_landing(state: State, width: PositiveFloat = 0.2, turned: PositiveFloat = 0.5) -> Tensor:
    """exp(−d² / width² − Δyaw² / turned²) for who has jumped, from when the landing is due: near the place, headed as before"""
    memory = _jump(state, "jump_landing")
    off = (memory.goal - state.base_position[:, :2]).square().sum(-1) / width**2
    off = off + wrap(state.yaw - memory.jump_yaw).square() / turned**2
    return torch.exp(-off) * (memory.has_jumped & _is_due_to_have_landed(memory))

"""What a network may see of each robot. (N, k)"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from etude.config.constraints import PositiveFloat
from etude.errors import UserError
from etude.robots.rotations import euler_of, from_yaw, rotate
from etude.robots.state import State
from etude.robots.terms.randomizations import find_randomization
from etude.robots.terms.table import Table

OBSERVATIONS = Table("observation term")
MOST_POINTS = 4096
"""Of a height scan."""
_READ = {
    "base_linear_velocity": ("base_linear_velocity", "v: of the base, in its own frame, m/s"),
    "base_angular_velocity": ("base_angular_velocity", "ω: of the base, in its own frame, rad/s (a gyroscope)"),
    "gravity": ("gravity", "g: the direction of gravity in the base's frame; (0, 0, −1) when upright"),
    "joint_position_absolute": ("joint_position", "q: joints as they are, rad"),
    "joint_velocity": ("joint_velocity", "q̇: rad/s"),
    "joint_torque": ("torques", "τ: of the motors, N·m"),
    "action": ("memory.action", "a: the last action"),
    "command": ("memory.command", "What is asked for: forward, sideways, turn; or a goal (`commands.goal`)"),
    "feet_height": ("feet_height", "The sole of each foot above the ground, m"),
    "feet_air_time": ("memory.air_time", "Seconds since each foot left the ground"),
    "last_push": ("memory.push", "The last push: linear and angular velocity, m/s and rad/s"),
}
"""Terms that are a part of the state as it is: where it lies, and what it is."""
for _name, (_place, _formula) in _READ.items():
    OBSERVATIONS.add_read(_name, _place, _formula, of_feet=_name.startswith("feet_"))


@OBSERVATIONS.add
def base_height(state: State) -> Tensor:
    """h: the base above the ground, m"""
    return state.base_height[:, None]


@OBSERVATIONS.add
def base_euler(state: State) -> Tensor:
    """Roll, pitch and yaw of the base, rad"""
    return euler_of(state.base_quaternion)


@OBSERVATIONS.add
def joint_position(state: State) -> Tensor:
    """q − q₀: joints relative to the default pose, rad"""
    return state.joint_position - state.default_pose


@OBSERVATIONS.add
def joint_position_measured(state: State) -> Tensor:
    """q − q₀ as the motors measure it: off by what the randomisation motor_offset drew"""
    offset = state.drawn.get("motor_offset")
    position = state.joint_position - state.default_pose
    return position if offset is None else position - offset


@OBSERVATIONS.add_for_feet()
def dof_pos_ref_diff(state: State) -> Tensor:
    """q − q_ref: joints relative to the robot's `stride` by the gait's clock, rad"""
    if not state.scene.description.stride:
        raise UserError(
            "environment.robot.observations: dof_pos_ref_diff: needs the robot's YAML to say its `stride`: {joint: rad}"
        )
    return state.joint_position - state.reference_pose


@OBSERVATIONS.add
def gait_phase(state: State) -> Tensor:
    """sin 2πφ, cos 2πφ: the gait's clock; 0, 0 where the robot is asked to stand"""
    angle = 2 * torch.pi * state.memory.phase
    return torch.stack([angle.sin(), angle.cos()], 1) * state.is_asked_to_move[:, None]


@OBSERVATIONS.add_for_feet()
def stance_clock(state: State) -> Tensor:
    """max(0, sin 2πφᵢ) of each foot: how far into its stance it should be"""
    return (2 * torch.pi * state.feet_phase).sin().clamp(min=0)


@OBSERVATIONS.add_for_feet()
def swing_clock(state: State) -> Tensor:
    """max(0, −sin 2πφᵢ) of each foot: how far into its swing it should be"""
    return (-(2 * torch.pi * state.feet_phase).sin()).clamp(min=0)


@OBSERVATIONS.add_for_feet()
def feet_contact(state: State) -> Tensor:
    """1 for each foot that stands"""
    return state.feet_in_contact.float()


@OBSERVATIONS.add_for_feet()
def feet_should_stand(state: State) -> Tensor:
    """1 for each foot that should stand by the gait's clock"""
    return state.feet_should_stand.float()


@OBSERVATIONS.add_for_feet()
def feet_force(state: State) -> Tensor:
    """Force on each foot, in the world, N: upward where it stands"""
    return state.feet_force.flatten(1)


@OBSERVATIONS.add_for_feet()
def feet_force_log(state: State) -> Tensor:
    """sign(F) · log(1 + |F|) of the force on each foot, along each axis of the world, N"""
    force = state.feet_force.flatten(1)
    return force.sign() * force.abs().log1p()


@OBSERVATIONS.add_for_feet()
def feet_position(state: State) -> Tensor:
    """Each foot relative to the base, along the world's axes, m"""
    return (state.feet_position - state.base_position[:, None]).flatten(1)


@OBSERVATIONS.add
def height_scan(state: State, length: PositiveFloat = 1.6, width: PositiveFloat = 1.0, step: PositiveFloat = 0.1) -> Tensor:
    """h − ground, less the standing height, on a grid around the robot that turns with it, at most 1 m to either side"""
    if (length / step + 1) * (width / step + 1) > MOST_POINTS:
        raise UserError(f"environment.robot.observations: height_scan.step={step:g}: makes more than {MOST_POINTS:,} points")
    if state.terrain is None:
        above = state.base_position[:, 2:].expand(state.count, len(_scan_grid(length, width, step, state.device)))
    else:
        above = state.base_position[:, 2:] - state.terrain.height(_scanned_places(state, length, width, step))
    return (above - state.standing_height).clamp(-1, 1)


def scanned_points(state: State, length: float = 1.6, width: float = 1.0, step: float = 0.1) -> Tensor:
    """Return the points of the ground that `height_scan` looks at with these options, (N, K, 3) in the world."""
    places = _scanned_places(state, length, width, step)
    ground = torch.zeros_like(places[..., 0]) if state.terrain is None else state.terrain.height(places)
    return torch.cat([places, ground[..., None]], -1)


def _scanned_places(state: State, length: float, width: float, step: float) -> Tensor:
    """(N, K, 2)"""
    grid = _scan_grid(length, width, step, state.device)
    turned = rotate(from_yaw(state.yaw)[:, None], grid[None].expand(state.count, -1, -1))
    return turned[..., :2] + state.base_position[:, None, :2]


@cache
def _scan_grid(length: float, width: float, step: float, device: torch.device) -> Tensor:
    """Points (K, 3) around the origin, along x first."""
    x = torch.arange(round(length / step) + 1, device=device) * step - length / 2
    y = torch.arange(round(width / step) + 1, device=device) * step - width / 2
    return torch.cat([torch.cartesian_prod(x, y), torch.zeros(len(x) * len(y), 1, device=device)], 1)


@OBSERVATIONS.add
def randomized(state: State, name: str = "floor_friction") -> Tensor:
    """What a randomisation drew for this robot, by its name"""
    value = state.drawn.get(name)
    if value is None:  # before the first draw, and where nothing is drawn: of the same size all the same
        drawn_by = find_randomization(name, f"environment.robot.observations: randomized.name={name}")
        return torch.zeros(state.count, drawn_by.width(state.scene), device=state.device)
    return value.float().view(state.count, -1)

"""Terms of a task that has a motion to follow."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.config.constraints import PositiveFloat
from etude.errors import UserError
from etude.robots.motions.motion import Motion
from etude.robots.rotations import rotate_inverse
from etude.robots.state import State
from etude.robots.terms.observations import OBSERVATIONS
from etude.robots.terms.rewards import REWARDS


def _motion(state: State, term: str) -> Motion:
    if state.motion is None:
        raise UserError(f"environment.robot: {term} is of tasks with a motion (environment.robot.motion.file)")
    return state.motion


@OBSERVATIONS.add
def motion_pose(state: State) -> Tensor:
    """q_ref − q₀: where the motion has the joints now, relative to the default pose, rad"""
    motion = _motion(state, "motion_pose")
    return motion.at(motion.joints, state.memory.phase) - state.default_pose


@REWARDS.add
def motion_joints(state: State, width: PositiveFloat = 0.3) -> Tensor:
    """exp(−mean (q − q_ref)² / width²)"""
    motion = _motion(state, "motion_joints")
    off = state.joint_position - motion.at(motion.joints, state.memory.phase)
    return torch.exp(-off.square().mean(-1) / width**2)


@REWARDS.add
def motion_joint_velocity(state: State, width: PositiveFloat = 4.0) -> Tensor:
    """exp(−mean (q̇ − q̇_ref)² / width²)"""
    motion = _motion(state, "motion_joint_velocity")
    off = state.joint_velocity - motion.at(motion.joint_velocity, state.memory.phase)
    return torch.exp(-off.square().mean(-1) / width**2)


@REWARDS.add
def motion_base(state: State, height: PositiveFloat = 0.05, tilt: PositiveFloat = 0.3) -> Tensor:
    """exp(−(h − h_ref)² / height² − |g − g_ref|² / tilt²)"""
    motion = _motion(state, "motion_base")
    phase = state.memory.phase
    down = state.down.expand_as(state.gravity)
    off = (state.gravity - rotate_inverse(motion.at(motion.tilt, phase), down)).square().sum(-1)
    high = (state.base_height - motion.at(motion.height, phase)).square()
    return torch.exp(-high / height**2 - off / tilt**2)


@REWARDS.add
def motion_velocity(state: State, linear: PositiveFloat = 0.5, angular: PositiveFloat = 1.0) -> Tensor:
    """exp(−|v − v_ref|² / linear² − |ω − ω_ref|² / angular²)"""
    motion = _motion(state, "motion_velocity")
    phase = state.memory.phase
    tilt = motion.at(motion.tilt, phase)
    wanted = rotate_inverse(tilt, motion.at(motion.linear_velocity, phase))
    off = (state.base_linear_velocity - wanted).square().sum(-1)
    turn = (state.base_angular_velocity - motion.at(motion.angular_velocity, phase)).square().sum(-1)
    return torch.exp(-off / linear**2 - turn / angular**2)

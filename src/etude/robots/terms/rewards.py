"""What is good or bad about a step. (N,) each, before its weight."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from etude.config.constraints import NonNegativeFloat, PositiveFloat, UnitInterval
from etude.errors import UserError
from etude.robots.models.description import assign
from etude.robots.state import State
from etude.robots.terms.table import Table

REWARDS = Table("reward term")


def _exponential(error: Tensor, width: float) -> Tensor:
    """exp(−error / width²): 1 where there is no error."""
    return torch.exp(-error / width**2)


def _total(value: Tensor) -> Tensor:
    return value.square().sum(-1)


def _less_when_standing(value: Tensor, state: State, standing: float) -> Tensor:
    """Return a value of which only the share `standing` counts while the robot is asked to stand."""
    return value if standing == 1 else torch.where(state.is_asked_to_move, value, standing * value)


# ---- the command ---------------------------------------------------------------------------------------------------------


@REWARDS.add
def track_linear_velocity(state: State, width: PositiveFloat = 0.5, vertical: NonNegativeFloat = 0.0) -> Tensor:
    """exp(−(|v_xy − command|² + vertical · v_z²) / width²)"""
    error = _total(state.memory.command[:, :2] - state.base_linear_velocity[:, :2])
    if vertical:
        error = error + vertical * state.base_linear_velocity[:, 2].square()
    return _exponential(error, width)


@REWARDS.add
def track_turn(state: State, width: PositiveFloat = 0.5, tilt: NonNegativeFloat = 0.0) -> Tensor:
    """exp(−((ω_z − command)² + tilt · |ω_xy|²) / width²)"""
    error = (state.memory.command[:, 2] - state.base_angular_velocity[:, 2]).square()
    if tilt:
        error = error + tilt * _total(state.base_angular_velocity[:, :2])
    return _exponential(error, width)


@REWARDS.add
def track_hard(state: State, slope: NonNegativeFloat = 0.2) -> Tensor:
    """mean of exp(−10 e) over v_xy and ω_z, less slope · (|e_xy| + |e_ω|)"""
    linear = (state.memory.command[:, :2] - state.base_linear_velocity[:, :2]).norm(dim=-1)
    turn = (state.memory.command[:, 2] - state.base_angular_velocity[:, 2]).abs()
    return (torch.exp(-10 * linear) + torch.exp(-10 * turn)) / 2 - slope * (linear + turn)


@REWARDS.add
def at_goal(state: State, width: PositiveFloat = 0.5) -> Tensor:
    """exp(−d² / width²) of the distance to the place to go to"""
    return _exponential(_total(state.memory.command[:, :2]), width)


@REWARDS.add
def facing_goal(state: State, width: PositiveFloat = 0.5, near: PositiveFloat = 1.0) -> Tensor:
    """exp(−Δψ² / width² − d² / near²) of the turn left to the heading that is asked for, and of the distance to its place"""
    if state.goal != "pose":
        raise UserError(
            "environment.robot.rewards.facing_goal: is of tasks that ask for poses (environment.robot.commands.goal=pose)"
        )
    command = state.memory.command
    return torch.exp(-command[:, 2].square() / width**2 - _total(command[:, :2]) / near**2)


@REWARDS.add
def approach(state: State, speed: PositiveFloat = 0.6) -> Tensor:
    """min(1, speed toward the place to go to / speed); 1 for who is there"""
    way = state.memory.command[:, :2]
    distance = way.norm(dim=-1)
    toward = (state.base_linear_velocity[:, :2] * way).sum(-1) / distance.clamp(min=1e-6)
    return torch.where(distance > 0, (toward / speed).clamp(-1, 1), 1.0)


@REWARDS.add
def velocity_mismatch(state: State) -> Tensor:
    """(exp(−10 v_z²) + exp(−5 |ω_xy|)) / 2: no motion that was not asked for"""
    vertical = torch.exp(-10 * state.base_linear_velocity[:, 2].square())
    return (vertical + torch.exp(-5 * state.base_angular_velocity[:, :2].norm(dim=-1))) / 2


@REWARDS.add
def low_speed(state: State) -> Tensor:
    """−1 below half the speed asked for, −2 the wrong way, 1.2 within 20% above and half below, while asked to move"""
    speed, asked = state.base_linear_velocity[:, 0], state.memory.command[:, 0]
    value = torch.where(speed.abs() < 0.5 * asked.abs(), -1.0, 0.0)
    value = torch.where((speed.abs() >= 0.5 * asked.abs()) & (speed.abs() <= 1.2 * asked.abs()), 1.2, value)
    value = torch.where(speed.sign() != asked.sign(), -2.0, value)
    return value * (asked.abs() > 0.1)


@REWARDS.add
def stand_still(state: State) -> Tensor:
    """Σ|q − q₀| while asked to stand"""
    return (state.joint_position - state.default_pose).abs().sum(-1) * ~state.is_asked_to_move


@REWARDS.add
def stand_velocity(state: State) -> Tensor:
    """|v_xy|² + ω_z² while asked to stand"""
    motion = _total(state.base_linear_velocity[:, :2]) + state.base_angular_velocity[:, 2].square()
    return motion * ~state.is_asked_to_move


# ---- the base ------------------------------------------------------------------------------------------------------------


@REWARDS.add
def vertical_velocity(state: State) -> Tensor:
    """v_z²"""
    return state.base_linear_velocity[:, 2].square()


@REWARDS.add
def tilt_velocity(state: State) -> Tensor:
    """|ω_xy|²"""
    return _total(state.base_angular_velocity[:, :2])


@REWARDS.add
def orientation(state: State) -> Tensor:
    """|g_xy|²: 0 when upright"""
    return _total(state.gravity[:, :2])


@REWARDS.add
def upright(state: State, width: PositiveFloat = 0.45) -> Tensor:
    """exp(−|g_xy|² / width²)"""
    return _exponential(_total(state.gravity[:, :2]), width)


@REWARDS.add
def height(state: State, target: PositiveFloat | None = None) -> Tensor:
    """(h − target)²; the robot's standing height by default"""
    return (state.base_height - (state.standing_height if target is None else target)).square()


@REWARDS.add
def base_acceleration(state: State) -> Tensor:
    """exp(−3 |v̇, ω̇| / 100): smooth motion of the base"""
    return torch.exp(-0.03 * state.base_acceleration.norm(dim=-1))


# ---- joints and motors ---------------------------------------------------------------------------------------------------


@REWARDS.add
def torques(state: State) -> Tensor:
    """|τ|²"""
    return _total(state.torques)


@REWARDS.add
def energy(state: State) -> Tensor:
    """Σ|τ q̇|, W"""
    return (state.torques * state.joint_velocity).abs().sum(-1)


@REWARDS.add
def joint_velocity(state: State) -> Tensor:
    """|q̇|²"""
    return _total(state.joint_velocity)


@REWARDS.add
def joint_acceleration(state: State) -> Tensor:
    """|q̈|², mean over the step"""
    return _total(state.joint_acceleration)


@REWARDS.add
def joint_limits(state: State, share: UnitInterval = 0.9) -> Tensor:
    """Σ radians beyond the middle `share` of each joint's range"""
    low, high = state.position_limits.unbind(-1)
    middle, half = (low + high) / 2, (high - low) / 2 * share
    beyond = ((state.joint_position - middle).abs() - half).clamp(min=0)
    return torch.where(half.isfinite(), beyond, 0.0).sum(-1)


@REWARDS.add
def joint_velocity_limits(state: State, limit: NonNegativeFloat = 20.0) -> Tensor:
    """Σ (|q̇| − limit) where it is above, at most 1 each"""
    return (state.joint_velocity.abs() - limit).clamp(0, 1).sum(-1)


@REWARDS.add
def torque_limits(state: State, share: UnitInterval = 0.9) -> Tensor:
    """Σ N·m beyond the `share` of what each motor can do"""
    beyond = (state.torques.abs() - share * state.effort_limit).clamp(min=0)
    return torch.where(state.effort_limit.isfinite(), beyond, 0.0).sum(-1)


@REWARDS.add
def pose(state: State, width: PositiveFloat = 0.5) -> Tensor:
    """exp(−mean (q − q₀)² / width²)"""
    return _exponential((state.joint_position - state.default_pose).square().mean(-1), width)


Widths = dict[str, PositiveFloat] | None
"""{joint, as a regular expression: rad}"""


@REWARDS.add
def pose_by_speed(
    state: State,
    standing: Widths = None,
    walking: Widths = None,
    running: Widths = None,
    walks_from: PositiveFloat = 0.05,
    runs_from: PositiveFloat = 1.5,
) -> Tensor:
    """exp(−mean ((q − q₀) / width)²), {joint: width} by the speed asked for, |v_xy| + |ω_z|; a joint without a width has 0.5"""
    command = state.memory.command
    speed = (command[:, :2].norm(dim=-1) + command[:, 2].abs())[:, None]
    widths = [
        _joint_widths(tuple((given or {}).items()), state.scene.joints, state.device) for given in (standing, walking, running)
    ]
    width = torch.where(speed < walks_from, widths[0], torch.where(speed < runs_from, widths[1], widths[2]))
    return torch.exp(-((state.joint_position - state.default_pose) / width).square().mean(-1))


@cache
def _joint_widths(given: tuple[tuple[str, float], ...], joints: tuple[str, ...], device: torch.device) -> Tensor:
    """(J,)"""
    named = assign(dict(given), joints, "environment.robot.rewards.pose_by_speed")
    return torch.tensor([named.get(joint, 0.5) for joint in joints], dtype=torch.float32, device=device)


@REWARDS.add_for_feet()
def dof_ref_pos_diff(state: State) -> Tensor:
    """exp(−2 |q − q_ref|) − 0.2 · min(|q − q_ref|, 0.5), with q_ref the robot's `stride` by the gait's clock"""
    if not state.scene.description.stride:
        raise UserError("environment.robot.rewards.dof_ref_pos_diff: needs the robot's YAML to say its `stride`: {joint: rad}")
    off = (state.joint_position - state.reference_pose).norm(dim=-1)
    return torch.exp(-2 * off) - 0.2 * off.clamp(max=0.5)


@REWARDS.add
def pose_deviation(state: State) -> Tensor:
    """|q − q₀|²"""
    return _total(state.joint_position - state.default_pose)


# ---- actions -------------------------------------------------------------------------------------------------------------


@REWARDS.add
def action_rate(state: State) -> Tensor:
    """|a − a′|²"""
    return _total(state.memory.action - state.memory.previous_action)


@REWARDS.add
def action_smoothness(state: State) -> Tensor:
    """|a − 2a′ + a″|² + |a − a′|² + 0.05 Σ|a|"""
    memory = state.memory
    rate = _total(memory.action - memory.previous_action)
    bend = _total(memory.action - 2 * memory.previous_action + memory.action_before)
    return bend + rate + 0.05 * memory.action.abs().sum(-1)


# ---- feet ----------------------------------------------------------------------------------------------------------------


@REWARDS.add_for_feet()
def gait(
    state: State, swing_height: PositiveFloat = 0.06, slip_width: PositiveFloat = 0.25, highest: PositiveFloat | None = None
) -> Tensor:
    """Mean over feet; in stance contact · exp(−|v_xy|² / slip_width²), in swing (no contact) · lift, where lift is
    min(1, height / swing_height), less (height / highest − 1) of a foot above `highest`"""
    contact = state.feet_in_contact.float()
    slip = _exponential(_total(state.feet_velocity[..., :2]), slip_width)
    lift = (state.feet_height / swing_height).clamp(0, 1)
    if highest is not None:
        if highest < swing_height:
            raise UserError(
                f"environment.robot.rewards.gait: highest={highest:g}: feet are to reach swing_height={swing_height:g}"
            )
        lift = lift - (state.feet_height / highest - 1).clamp(0, 1)
    return torch.where(state.feet_should_stand, contact * slip, (1 - contact) * lift).mean(-1)


@REWARDS.add_for_feet()
def feet_contact_number(state: State) -> Tensor:
    """Mean over feet of 1 where contact is as the gait's clock says, −0.3 where not"""
    agrees = state.feet_in_contact == state.feet_should_stand
    return torch.where(agrees, 1.0, -0.3).mean(-1)


@REWARDS.add_for_feet()
def feet_air_time(state: State, target: NonNegativeFloat = 0.5) -> Tensor:
    """Σ (t_air − target) at each touch-down, while asked to move"""
    memory = state.memory
    return ((memory.last_air_time - target) * memory.landed).sum(-1) * state.is_asked_to_move


@REWARDS.add_for_feet()
def single_stance(state: State, longest: PositiveFloat = 0.4) -> Tensor:
    """Seconds for which exactly one foot has stood (or swung), at most `longest`, while asked to move"""
    memory = state.memory
    one = memory.standing.sum(-1) == 1
    lasted = torch.where(memory.standing, memory.contact_time, memory.air_time).amin(-1)
    return lasted.clamp(max=longest) * one * state.is_asked_to_move


@REWARDS.add_for_feet()
def no_fly(state: State) -> Tensor:
    """1 where exactly one foot stands, −1 where none does, else 0"""
    standing = state.feet_in_contact.sum(-1)
    return (standing == 1).float() - (standing == 0).float()


@REWARDS.add_for_feet()
def feet_slip(state: State, standing: UnitInterval = 1.0) -> Tensor:
    """Σ |v_xy|² of feet that stand; the share `standing` of it while asked to stand"""
    slip = (_total(state.feet_velocity[..., :2]) * state.feet_in_contact).sum(-1)
    return _less_when_standing(slip, state, standing)


@REWARDS.add_for_feet()
def feet_clearance(state: State, target: NonNegativeFloat = 0.06, standing: UnitInterval = 1.0) -> Tensor:
    """Σ |height − target| · |v_xy| of feet; the share `standing` of it while asked to stand"""
    low = ((state.feet_height - target).abs() * state.feet_velocity[..., :2].norm(dim=-1)).sum(-1)
    return _less_when_standing(low, state, standing)


@REWARDS.add_for_feet()
def swing_height(state: State, target: PositiveFloat = 0.06) -> Tensor:
    """Σ (peak / target − 1)² at each touch-down, while asked to move"""
    memory = state.memory
    return ((memory.last_peak_height / target - 1).square() * memory.landed).sum(-1) * state.is_asked_to_move


@REWARDS.add_for_feet()
def feet_stumble(state: State) -> Tensor:
    """1 if a foot meets a wall: |F_xy| > 5 |F_z|"""
    force = state.feet_force
    return (force[..., :2].norm(dim=-1) > 5 * force[..., 2].abs()).any(-1).float()


@REWARDS.add_for_feet()
def feet_impact(state: State, limit: NonNegativeFloat = 150.0) -> Tensor:
    """Σ newtons beyond the limit, at most 400 each foot"""
    return (state.feet_force.norm(dim=-1) - limit).clamp(0, 400).sum(-1)


@REWARDS.add_for_feet()
def landing_force(state: State) -> Tensor:
    """Σ |F|, N, of feet that touch down, while asked to move"""
    return (state.feet_force.norm(dim=-1) * state.memory.landed).sum(-1) * state.is_asked_to_move


@REWARDS.add_for_feet(2)
def feet_distance(state: State, low: NonNegativeFloat = 0.15, high: NonNegativeFloat = 0.5) -> Tensor:
    """For two feet: (exp(−100 |d − low|₋) + exp(−100 |d − high|₊)) / 2 of their horizontal distance"""
    return _apart(state.feet_position, low, high, "feet_distance")


@REWARDS.add
def knee_distance(state: State, low: NonNegativeFloat = 0.15, high: NonNegativeFloat = 0.5) -> Tensor:
    """For two knees, the robot's `knees`: as feet_distance"""
    if state.knees_position.shape[1] != 2:
        raise UserError(
            "environment.robot.rewards.knee_distance: is of robots whose YAML names two `knees`, shins that begin there"
        )
    return _apart(state.knees_position, low, high, "knee_distance")


def _apart(two: Tensor, low: float, high: float, term: str) -> Tensor:
    """(N, 2, 3) → 1 where both are between `low` and `high` metres apart, on the ground's plane"""
    if low > high:
        raise UserError(f"environment.robot.rewards.{term}.low={low:g}: must be at most high, {high:g}")
    distance = (two[:, 0, :2] - two[:, 1, :2]).norm(dim=-1)
    near, far = (distance - low).clamp(-0.5, 0), (distance - high).clamp(0, 0.5)
    return (torch.exp(-100 * near.abs()) + torch.exp(-100 * far.abs())) / 2


# ---- the rest ------------------------------------------------------------------------------------------------------------


@REWARDS.add
def collisions(state: State, bodies: tuple[str, ...] = (), force: NonNegativeFloat = 1.0) -> Tensor:
    """How many of these bodies touch something with more than `force`, N"""
    return (state.contact_force(bodies) > force).float().sum(-1)


@REWARDS.add
def alive(state: State) -> Tensor:
    """1"""
    return torch.ones(state.count, device=state.device)


@REWARDS.add
def termination(state: State) -> Tensor:
    """1 where the episode ends by a fall, not by a time limit"""
    return state.fell.float()

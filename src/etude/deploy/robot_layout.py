"""What a robot must know to run an exported policy: joints, motors, clocks, commands and what observations are made of."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from etude.config.robots import WELL_THERE

if TYPE_CHECKING:  # MuJoCo is an extra, and other policies are exported without it
    from etude.config.robots import CommandConfig
    from etude.robots.environment import RobotVector

ROBOT_FILE = "robot.xml"


@dataclass(frozen=True)
class JointLayout:
    """A joint and its motor.

    An action a, clipped to [−1, 1], is a target: default_position + action_scale · a, rad, where `control` is position, and
    action_scale · a, rad/s, where it is velocity. The motor's torque is stiffness · (target − q) − damping · q̇, or
    damping · (target − q̇), within ± effort_limit. With a velocity_limit it pushes in the direction of its motion with at most
    stall_torque · (1 − |q̇| / velocity_limit).
    """

    name: str
    default_position: float
    action_scale: float
    control: Literal["position", "velocity"]
    stiffness: float
    damping: float
    effort_limit: float | None
    lower: float | None
    """The range of the joint, rad; null where it has none."""
    upper: float | None
    stall_torque: float | None = None
    velocity_limit: float | None = None
    stride: float = 0.0
    """How far it is off the default position at the height of its leg's swing, rad: for `dof_pos_ref_diff`."""
    foot: int | None = None
    """Which foot's leg it is of, in the order of `gait.feet`; null: none's."""
    acts: bool = True
    """Whether actions move it; a joint without one holds its default position, and its action is seen as 0."""
    network: str | None = None
    """The network that the motor was in training, in the place of stiffness and damping; it is no part of the export."""


@dataclass(frozen=True)
class TermLayout:
    """A part of an observation: value → clip to ± clip → times scale; `history` steps of it, the oldest first."""

    term: str
    size: int
    scale: float
    clip: float | None
    history: int
    options: dict[str, Any]


@dataclass(frozen=True)
class CommandLayout:
    """What the robot was trained to follow: velocities, forward and sideways in m/s, turn in rad/s; or goals."""

    forward: tuple[float, float]
    sideways: tuple[float, float]
    turn: tuple[float, float]
    smallest: float
    """Slower ones were never asked for; a command of exactly 0 means to stand still."""
    goal: Literal["velocity", "position", "pose", "jump"] = "velocity"
    """Where it is not velocity, a command is a place, in metres ahead and to the left of the robot, as it is now, and rad to
    turn left to the heading of a pose, or the height of a jump, m. Each is 0 well within its tolerance, a jump when it is
    over."""
    distance: tuple[float, float] | None = None
    """Of places and of jumps, m."""
    reached: float | None = None
    """Tolerance of places, m."""
    facing: float | None = None
    """Tolerance of a pose's heading, rad."""
    arrival: float | None = None
    """How far a pose's heading was from the robot's when it was asked, rad to either side."""
    height: tuple[float, float] | None = None
    """Of jumps, m."""
    angle: float | None = None
    """Between straight ahead and the way to jump, rad to either side."""
    crouch_s: float | None = None
    """Seconds from the command of a jump to its take-off."""
    still_within: float | None = None
    """The share of the tolerances within which a place or a heading is 0."""


@dataclass(frozen=True)
class GaitLayout:
    """The gait's clock: the phase runs from 0 to 1 `hz` times a second; `offsets` of it are ahead at each foot."""

    hz: float
    feet: tuple[str, ...]
    offsets: tuple[float, ...]


@dataclass(frozen=True)
class GroundStart:
    """A place on uneven ground to begin at: the middle of a tile."""

    kind: str
    level: int
    """From 0, the easiest."""
    x: float
    y: float


@dataclass(frozen=True)
class RobotLayout:
    """A robot and its task."""

    model: str
    file: str
    """A MJCF of the robot with its motors, on flat ground."""
    base: str
    """The body whose motion is the robot's."""
    timestep: float
    """Seconds of a physics step."""
    decimation: int
    """Physics steps for each action: the policy runs every timestep · decimation seconds."""
    joints: tuple[JointLayout, ...]
    """In the order of every observation that has an entry for each joint, and of actions, which only those have that act."""
    observations: dict[str, tuple[TermLayout, ...]]
    """For each input of the policy, what stands in it, in order."""
    commands: CommandLayout
    gait: GaitLayout
    start_height: float
    """Of the base above the ground, in the default pose with the feet just over it, m."""
    standing_height: float
    fall_tilt: float | None
    """The robot has fallen when it leans by more than this, rad; null: it can't."""
    fall_height: float | None
    """The robot has fallen when its base is lower than this above the ground, m; null: it can't."""
    stride: float = 0.0
    """How much of the joints' strides is added to their targets by the gait's clock: max(0, −sin 2π phase) of each leg's, while
    the robot is asked to move."""
    ground: tuple[GroundStart, ...] = ()
    """Where to begin on the ground of `file`, one for each kind and level; none: it is flat."""


def robot_layout(robots: RobotVector, inputs: list[str]) -> RobotLayout:
    """Describe a robot's task; `inputs` are the parts of its observation that the policy reads."""
    task, scene = robots.task, robots.scene
    groups = {name: name if name in robots.groups else next(iter(robots.groups)) for name in inputs}
    return RobotLayout(
        model=Path(task.model).name,  # a robot of the user's own is a path
        file=ROBOT_FILE,
        base=scene.model.body(scene.base_body).name,
        timestep=task.timestep,
        decimation=task.decimation,
        joints=tuple(_joint(robots, index) for index in range(len(scene.joints))),
        observations={name: _terms(robots, group) for name, group in groups.items()},
        commands=_commands(task.commands),
        gait=GaitLayout(task.commands.gait_hz, scene.feet, tuple(robots.state.gait_offsets.tolist())),
        start_height=float(scene.start_height),
        standing_height=float(scene.description.height),
        fall_tilt=_limit(robots, "tilt", "limit"),
        fall_height=_limit(robots, "low", "height"),
        stride=float(task.action.stride),
        ground=_ground(robots),
    )


def _commands(asked: CommandConfig) -> CommandLayout:
    velocities = (asked.forward, asked.sideways, asked.turn, asked.smallest)
    if asked.goal == "velocity":
        return CommandLayout(*velocities)
    if asked.goal == "jump":
        jump = asked.jump
        more = {"distance": jump.distance, "height": jump.height, "angle": jump.angle, "crouch_s": jump.crouch_s}
        return CommandLayout(*velocities, goal=asked.goal, **more)  # type: ignore[arg-type] # each of its own type
    layout = CommandLayout(
        *velocities, goal=asked.goal, distance=asked.distance, reached=asked.reached, still_within=WELL_THERE
    )
    return layout if asked.goal == "position" else replace(layout, facing=asked.facing, arrival=asked.arrival)


def _ground(robots: RobotVector) -> tuple[GroundStart, ...]:
    """The first tile of each kind in every row."""
    terrain = robots.terrain
    if terrain is None:
        return ()
    columns = {kind: terrain.column_kinds.index(kind) for kind in terrain.column_kinds}
    return tuple(
        GroundStart(kind, level, *map(float, terrain.origins[level, column].tolist()))
        for level in range(terrain.config.levels)
        for kind, column in columns.items()
    )


def _joint(robots: RobotVector, index: int) -> JointLayout:
    scene = robots.scene
    lower, upper = scene.position_limits[index]
    return JointLayout(
        name=scene.joints[index],
        default_position=float(scene.default_pose[index]),
        action_scale=float(scene.action_scale[index]),
        control="position" if scene.controls_position[index] else "velocity",
        stiffness=float(scene.stiffness[index]),
        damping=float(scene.damping[index]),
        effort_limit=_finite(scene.effort_limit[index]),
        lower=_finite(lower),
        upper=_finite(upper),
        stall_torque=_finite(scene.stall_torque[index]) if np.isfinite(scene.velocity_limit[index]) else None,
        velocity_limit=_finite(scene.velocity_limit[index]),
        stride=float(scene.stride[index]),
        acts=index in scene.acted,
        network=next((network.name for network, places in scene.networks if index in places), None),
        foot=None if scene.foot_of_joint[index] < 0 else int(scene.foot_of_joint[index]),
    )


def _terms(robots: RobotVector, group: str) -> tuple[TermLayout, ...]:
    from etude.robots.observing import LOOK_KEYS

    chosen = robots.task.observations[group]
    return tuple(
        TermLayout(
            term=seen["term"],
            size=seen["size"],
            scale=float(seen["scale"]),
            clip=seen["clip"],
            history=seen["history"],
            options={key: value for key, value in (chosen[seen["term"]] or {}).items() if key not in LOOK_KEYS},
        )
        for seen in robots.groups[group].layout()
    )


def _limit(robots: RobotVector, termination: str, option: str) -> float | None:
    """Return an option of a termination, None where the task does not have it."""
    from etude.robots.terms.terminations import TERMINATIONS

    if termination not in robots.terminations:
        return None
    default = inspect.signature(TERMINATIONS.terms[termination]).parameters[option].default
    return float((robots.task.terminations[termination] or {}).get(option, default))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""A robot's task as data: its robot, ground, commands, observations, rewards, ends and randomisations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from etude.config.constraints import (
    Bounds,
    Interval,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    above,
    at_least,
    between,
)

Range = Annotated[tuple[float, float], Interval()]
"""A lower and an upper bound; equal ones mean that number."""
Durations = Annotated[tuple[float, float], Interval(above(0))]
"""From the shortest to the longest, s."""
Steps = Annotated[tuple[float, float], Interval(between(0, 1000), whole=True)]
"""From the fewest to the most."""


@dataclass(frozen=True)
class ActuatorConfig:
    """Motors: torque = stiffness · (target − position) − damping · velocity, or = damping · (target − velocity).

    Or what a network says that was learnt from logs of the real one (`etude robots actuator`).

    With a velocity_limit ω₀ a motor can push with min(effort_limit, stall_torque · (1 − q̇ / ω₀)) in the direction of its
    motion, down to nothing; it brakes with all it has.
    """

    joints: str = ".*"
    """The joints that have such a motor, as a regular expression."""
    control: Literal["position", "velocity"] = "position"
    """What an action sets a target for."""
    network: str = ""
    """A network learnt from logs, in the place of stiffness and damping: the path of its files, from the robot's YAML or the
    current folder. Within effort_limit, or what the logs had. Default: none."""
    stiffness: PositiveFloat = 25.0
    """N·m/rad."""
    damping: NonNegativeFloat = 0.5
    """N·m·s/rad."""
    effort_limit: PositiveFloat | None = None
    """The largest torque, N·m. Default: none."""
    velocity_limit: PositiveFloat | None = None
    """The speed at which the motor can't push any more, rad/s. Default: none."""
    stall_torque: PositiveFloat | None = None
    """With a velocity_limit: the torque at standstill from which it falls to none there, N·m. Default: effort_limit."""
    armature: NonNegativeFloat | None = None
    """Inertia of the rotor, seen through the gear, kg·m². Default: the model's."""
    action_scale: PositiveFloat = 0.5
    """How far an action of 1 moves the target from the default pose, rad; or the velocity that it asks for, rad/s."""

    def __post_init__(self) -> None:
        """Refuse half a curve, and a network of what it has not learnt."""
        if self.network and self.control != "position":
            raise ValueError(f"network={self.network}: is of a motor that holds a position, not control={self.control}")
        if self.velocity_limit is not None and self.effort_limit is None and self.stall_torque is None:
            raise ValueError(f"velocity_limit={self.velocity_limit:g}: needs effort_limit or stall_torque, which it falls from")
        if self.stall_torque is not None and self.velocity_limit is None:
            raise ValueError(f"stall_torque={self.stall_torque:g}: needs velocity_limit, which it falls to")


@dataclass(frozen=True)
class ActionConfig:
    """From the policy's actions to the targets of the motors."""

    lag: Steps = (0.0, 0.0)
    """Physics steps until an action takes effect, drawn at each reset (whole numbers)."""
    scale: PositiveFloat = 1.0
    """Factor of every motor's action_scale. Actions end at −1 and 1: what climbs must reach further than what walks."""
    joints: tuple[str, ...] = ()
    """The joints that actions move, as regular expressions; the others hold the default pose. Empty: all of them. A humanoid's
    legs alone learn to walk in a fraction of the steps that all of its joints take."""
    stride: NonNegativeFloat = 0.0
    """How much of the robot's `stride` by the gait's clock is added to what actions ask for. With 1 actions of 0 step on the
    spot, and what is learnt are corrections: of use where a robot that stands would lose by its first steps."""


Goal = Literal["velocity", "position", "pose", "jump"]
GRAVITY = 9.81
WELL_THERE = 0.75
"""The share of its tolerance within which a goal is shown as 0: who stops there is there, and not at the edge."""
_HEADINGS = {"pose": "arrival says which headings poses have", "jump": "a jump keeps the heading that it began with"}


@dataclass(frozen=True)
class JumpConfig:
    """A jump: the robot crouches, flies as anything flies that was thrown so high, lands, and stands."""

    distance: Annotated[tuple[float, float], Interval(at_least(0))] = (0.0, 0.5)
    """From where the robot stands to where it is to land, m."""
    angle: Annotated[float, between(0, 3.1416)] = 0.5
    """Between straight ahead and the way to jump, rad to either side."""
    height: Annotated[tuple[float, float], Interval(between(0.02, 5))] = (0.1, 0.2)
    """By how much the base is to rise above where it stands, m."""
    crouch_s: Annotated[float, between(0, 5)] = 0.4
    """Seconds from the command to the take-off."""

    @property
    def longest_s(self) -> float:
        """How long the highest jump takes from the command to the landing on even ground."""
        return self.crouch_s + 2 * (2 * self.height[1] / GRAVITY) ** 0.5


@dataclass(frozen=True)
class CommandConfig:
    """The velocity that the robot is asked for, in its own frame; or a place to go to, a pose to take there, or a jump."""

    goal: Goal = "velocity"
    """What a command is. position: a place, as metres ahead and to the left of the robot, and 0 once it is there. pose: a place
    and, in rad, how far to turn left to face the right way there; each is 0 within three quarters of its tolerance. jump: the
    place to land at and the height to jump, m, and 0 from the landing on."""
    distance: Annotated[tuple[float, float], Interval(above(0))] = (1.0, 4.0)
    """Of places to go to, m."""
    reached: PositiveFloat = 0.15
    """How near to its place a robot is there, m."""
    arrival: Annotated[float, between(0, 3.1416)] = 3.1416
    """Of poses: how far the heading there may be from the robot's when it is asked, rad to either side."""
    facing: Annotated[float, Bounds(0, 3.1416, low_open=True)] = 0.2
    """Of poses: how near to its heading a robot faces the right way, rad."""
    jump: JumpConfig = JumpConfig()
    """Of jumps: how far, how high, and how long to crouch."""
    forward: Range = (-1.0, 1.0)
    """m/s along the robot."""
    sideways: Range = (-0.5, 0.5)
    """m/s to its left."""
    turn: Range = (-1.0, 1.0)
    """rad/s about its vertical axis."""
    every_s: Durations = (4.0, 8.0)
    """Seconds until another command is drawn."""
    standing: UnitInterval = 0.1
    """Share of commands that ask to stand still."""
    straight: UnitInterval = 0.0
    """Share of commands that ask to walk straight ahead or back, without a turn."""
    heading: UnitInterval = 0.0
    """Share of commands that ask for a heading in the world instead of a turn."""
    heading_stiffness: PositiveFloat = 0.5
    """Turn asked for per radian off that heading, 1/s."""
    smallest: NonNegativeFloat = 0.1
    """Commands slower than this (m/s, and rad/s) mean standing still."""
    gait_hz: PositiveFloat = 2.0
    """Strides a second of the gait's clock."""
    levels: PositiveInt = 1
    """In training, in how many levels ranges grow to full width, robot by robot, as it follows its commands; 1: at once."""
    level_up: UnitInterval = 0.8
    """A robot moves a level up after an episode without a fall that followed commands better than this (1 is exactly)."""
    level_down: UnitInterval = 0.5
    """And a level down after one that followed them worse than this."""
    own: str = ""
    """A function of your own, file.function: velocity(state) → (N, 3), asked at every step in the place of what is drawn."""
    promote: str = ""
    """With levels, a function of your own in the place of level_up and level_down: promote(state) → (N,) of 1 (up), 0, −1."""

    def __post_init__(self) -> None:
        """Refuse levels that would go up and down at once."""
        if self.level_down > self.level_up:
            raise ValueError(f"level_down={self.level_down:g}: must be at most level_up, {self.level_up:g}")
        if self.goal != "velocity" and self.levels > 1 and not self.promote:
            raise ValueError(
                f"goal={self.goal}: levels={self.levels} are of velocities; a function of yours may move them (promote)"
            )
        if self.goal in ("pose", "jump") and self.heading > 0:
            raise ValueError(
                f"goal={self.goal}: heading={self.heading:g} is of velocities, which turn to it; {_HEADINGS[self.goal]}"
            )
        if self.goal == "jump" and self.every_s[0] <= self.jump.longest_s:
            raise ValueError(
                f"goal=jump: every_s={list(self.every_s)}: must be above the {self.jump.longest_s:.2f} s that the highest jump "
                "takes"
            )
        if self.promote and self.levels == 1:
            raise ValueError(f"promote={self.promote}: needs levels above 1, which it moves robots through")


@dataclass(frozen=True)
class TerrainConfig:
    """The ground: flat, or tiles of several kinds, harder from row to row."""

    type: Literal["flat", "tiles"] = "flat"
    """flat: one plane; tiles: see kinds."""
    kinds: dict[str, float] = field(
        default_factory=lambda: {
            "flat": 0.1, "slope": 0.15, "rough": 0.25, "stairs_up": 0.15, "stairs_down": 0.15, "discrete": 0.2,
        }
    )  # fmt: skip
    """Which share of the columns is of each kind: flat, slope, rough, stairs_up, stairs_down, discrete, stepping_stones, gap,
    pit."""
    levels: PositiveInt = 6
    """Rows, from the easiest to the hardest."""
    columns: PositiveInt = 10
    """Tiles in a row."""
    tile: Annotated[float, at_least(4)] = 8.0
    """Metres of a tile's side."""
    cell: PositiveFloat = 0.1
    """Metres between two heights."""
    first_levels: PositiveInt = 3
    """Robots begin in one of this many of the easiest rows."""
    curriculum: bool = True
    """Move robots that walk off their tile to a harder one, and those that get nowhere to an easier one."""
    promote: str = ""
    """A function of your own, file.function, in the place of that: promote(state) → (N,) of 1 (harder), 0, −1 (easier), read
    where an episode ends."""
    seed: Annotated[int, at_least(0)] = 0
    """What the ground is made from; the same in training and evaluation."""


@dataclass(frozen=True)
class MotionConfig:
    """A motion to follow, which the gait's clock repeats."""

    file: str = ""
    """trot, pace or bound, which are made for the robot; or a .npz or .csv file. Default: none."""
    speed: float = 0.5
    """Of a motion that is made, m/s."""
    stride_s: PositiveFloat = 0.5
    """Of a motion that is made, the seconds of a stride."""
    lift: PositiveFloat = 0.06
    """Of a motion that is made, how high feet are lifted, m."""
    fps: PositiveFloat | None = None
    """Frames a second of a file. Default: what it says, or 30."""
    start: bool = True
    """Whether episodes begin amid the motion, and not in the default pose."""


@dataclass(frozen=True)
class ResetConfig:
    """How an episode begins."""

    position: NonNegativeFloat = 0.5
    """Metres off the place of the robot, in x and y."""
    yaw: NonNegativeFloat = 3.14159
    """Radians to either side."""
    joints: Annotated[float, between(0, 3.15)] = 0.1
    """Radians off the default pose, each joint."""
    velocity: NonNegativeFloat = 0.2
    """m/s and rad/s of the base."""


@dataclass(frozen=True)
class SolverConfig:
    """MuJoCo's solver; fewer iterations are faster and less exact."""

    iterations: PositiveInt = 10
    """Newton iterations."""
    line_search: PositiveInt = 20
    """Steps of each line search."""
    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    """Shape of the friction cone."""
    impratio: PositiveFloat = 1.0
    """How much stiffer friction is than what keeps bodies apart; higher slips less, and wants an elliptic cone."""
    self_collisions: bool | None = None
    """Whether parts of the robot touch each other. Default: those that the robot's file names as `touching`, such as legs."""
    contacts: PositiveInt | None = None
    """On a GPU: contacts of each robot that there is room for, on average over all. Default: what feet have, and
    at least 16 if the model can have as many."""
    constraints: PositiveInt | None = None
    """On a GPU: rows of constraints of each robot that there is room for. Default: enough for one that lies on the ground."""
    unrolled: bool = False
    """On a GPU: take all iterations in every physics step, without a look at whether some robot still needs them. The results
    are the same; which is faster depends on how many robots there are and how many iterations."""


@dataclass(frozen=True)
class RobotConfig:
    """A task for a robot."""

    model: str = ""
    """One that comes with Etude (quadruped, biped, ball), or the path of a robot's YAML, or of a MJCF or URDF file."""
    simulator: Literal["auto", "cpu", "warp"] = "auto"
    """Where training robots live. cpu: MuJoCo on threads, exact; warp: MuJoCo Warp on experiment.device; auto: warp where that
    is a GPU. Evaluations, trials and videos always run on the CPU."""
    timestep: Annotated[float, Bounds(low=0, high=0.05, low_open=True)] = 0.005
    """Seconds of one physics step."""
    decimation: PositiveInt = 4
    """Physics steps for each action."""
    actuators: dict[str, ActuatorConfig] = field(default_factory=dict)
    """Groups of motors. Default: the robot's own."""
    action: ActionConfig = ActionConfig()
    """How actions reach the motors."""
    terrain: TerrainConfig = TerrainConfig()
    """The ground."""
    commands: CommandConfig = CommandConfig()
    """What the robot is asked to do."""
    observations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """A group of terms for each network that reads one (actor, critic): {term: {scale, clip, noise, lag, history}}."""
    rewards: dict[str, Any] = field(default_factory=dict)
    """{term: weight} or {term: {weight, options}}; a weight of 0 or null is not computed."""
    scale_rewards_by_dt: bool = True
    """Multiply weights by the seconds of a step, so that they don't depend on its length."""
    only_positive_rewards: bool = False
    """Count a negative sum of rewards as 0; a reward for terminating is added after that."""
    terminations: dict[str, Any] = field(default_factory=dict)
    """{term: {options}}: what ends an episode."""
    randomization: dict[str, Any] = field(default_factory=dict)
    """{term: {options}}: what differs between robots and episodes in training; off in evaluations."""
    motion: MotionConfig = MotionConfig()
    """A motion that terms compare the robot with, such as motion_joints."""
    reset: ResetConfig = ResetConfig()
    """How an episode begins."""
    solver: SolverConfig = SolverConfig()
    """The simulator's solver."""
    files: str | None = field(init=False, default=None, compare=False, metadata={"plain": False})
    """Where the run keeps its copy of the model, if it has one; no setting."""
    networks: dict[str, str] = field(init=False, default_factory=dict, compare=False, metadata={"plain": False})
    """Where the run keeps its copies of motors' networks, by how they are named; no setting."""

    @property
    def usual_episode_steps(self) -> int:
        """After how many steps an episode is cut where environment.max_episode_steps does not say: 20 seconds."""
        return round(20.0 / (self.timestep * self.decimation))

    @property
    def own_terms(self) -> list[str]:
        """The terms that are import paths, each with its section: what a stranger's config may not name."""
        groups = {f"observations.{group}": terms for group, terms in self.observations.items()}
        sections = {"rewards": self.rewards, "terminations": self.terminations, "randomization": self.randomization, **groups}
        named = {
            "commands.own": self.commands.own,
            "commands.promote": self.commands.promote,
            "terrain.promote": self.terrain.promote,
        }
        terms = [f"{section}.{name}" for section, terms in sections.items() for name in terms if "." in name or ":" in name]
        return terms + [f"{key}={name}" for key, name in named.items() if name]

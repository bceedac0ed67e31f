"""Trials: robots on scripted commands, without exploration noise, and what there is to measure of how they walk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.config.robots import CommandConfig
from etude.errors import UserError
from etude.robots.environment import RobotVector
from etude.robots.goal_trial import GoalResult, GoalWatch, goal_scripts
from etude.robots.legs import LegGaps
from etude.robots.simulators.cpu_simulation import CpuSimulation

GRAVITY = 9.81
MOTION = ("forward", "sideways", "turn")
MOTION_OF = {"velocity": MOTION, "position": ("ahead", "left", "turn"), "pose": ("ahead", "left", "turn"),
             "jump": ("ahead", "left", "height")}  # fmt: skip
"""What the numbers of a command are."""
GAPS_EVERY = 2
"""Steps between two looks at how near legs are: their shapes are compared one by one."""
Act = Callable[[Any, Tensor], Tensor]
"""From an observation and which robots begin an episode (N,) to actions (N, J)."""


@dataclass(frozen=True)
class Script:
    """What is asked of the robots: commands by the second they begin at, and a push."""

    name: str
    commands: tuple[tuple[float, float, float, float], ...] = ((0.0, 0.0, 0.0, 0.0),)
    """(second, forward, sideways, turn), in order; of goals (second, ahead, left, turn or height)."""
    push: float = 0.0
    """m/s to the side, halfway through."""

    def at(self, second: float) -> tuple[float, float, float]:
        """Return the command in force."""
        _, *command = max((entry for entry in self.commands if entry[0] <= second + 1e-9), key=lambda entry: entry[0])
        return tuple(command)  # type: ignore[return-value] # three numbers are left


def constant(name: str, forward: float = 0.0, sideways: float = 0.0, turn: float = 0.0, push: float = 0.0) -> Script:
    """Return a script of one command."""
    return Script(name, ((0.0, forward, sideways, turn),), push)


SCRIPTS = (
    constant("stand"),
    constant("forward", forward=0.8),
    constant("backward", forward=-0.6),
    constant("sideways", sideways=0.4),
    constant("turn", turn=0.8),
    Script("mixed", ((0.0, 0.5, 0.0, 0.0), (2.0, 0.5, 0.2, 0.5), (4.0, -0.3, -0.2, -0.5), (6.0, 0.0, 0.0, 0.0))),
    constant("pushed", forward=0.4, push=0.6),
)


def usual_scripts(config: CommandConfig) -> list[Script]:
    """Return what is asked of robots of a task, by what its commands are."""
    if config.goal == "velocity":
        return list(SCRIPTS)
    return [Script(name, tuple(rows)) for name, rows in goal_scripts(config).items()]


@dataclass(frozen=True)
class TrialResult:
    """How robots did on one script. Means are over robots and over the seconds after the first two."""

    name: str
    robots: int
    seconds: float
    falls: int
    """Robots that fell at least once."""
    velocity: tuple[float, float, float]
    """Mean: forward, sideways, turn."""
    command: tuple[float, float, float]
    """Mean of what was asked for; of goals, as the robots saw them on their way."""
    error: tuple[float, float, float]
    """Mean distance from the command, of each; of goals, of what was left of them."""
    speed: float
    """Mean horizontal speed, whatever its direction, m/s."""
    slip: float
    """Mean horizontal speed of feet that stand, m/s."""
    foot_lift: float
    """The 95th percentile of feet's height in their swings, m; 0 where none swings."""
    steps_per_second: float
    """Touch-downs of each foot."""
    stance: float
    """Share of the time that a foot stands."""
    alternation: float
    """Share of touch-downs that are of another foot than the one before, of two feet; of a trot's pairs with four."""
    power: float
    """Mean mechanical power of the motors, W."""
    cost_of_transport: float
    """Power / (weight · speed); infinite where the robot stands."""
    torque_peak: float
    """The largest torque of any motor, N·m."""
    feet_apart: float | None
    """Metres between the middles of two feet, on the ground's plane; nearer in 1% of the time alone."""
    leg_gap: float | None
    """Metres between two legs, at most 0.1; less in 1% of the time alone."""
    leg_clash: float | None
    """Share of the time in which two legs touch, or are inside each other."""
    goal: GoalResult | None = None
    """Where commands are goals: how the last one came out."""
    complete: bool = True
    """Whether the script was followed to its end; one that was stopped has `seconds` of it."""
    series: dict[str, np.ndarray] = field(repr=False, default_factory=dict)
    """What the robots did, by the second: mean over robots, which walk in step; (T,) or (T, k)."""
    first: dict[str, np.ndarray] = field(repr=False, default_factory=dict)
    """What the first robot did, (T,) or (T, k)."""
    columns: dict[str, tuple[str, ...]] = field(repr=False, default_factory=dict)
    """What each column of a series is of: joints and feet by their names."""

    def as_json(self) -> dict[str, Any]:
        """Return the numbers, without the series."""
        numbers = {key: value for key, value in asdict(self).items() if key not in ("series", "first", "columns")}
        return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in numbers.items()}


def run_trial(
    environment: RobotVector,
    act: Act,
    script: Script,
    *,
    seconds: float,
    seed: int,
    look: Callable[[], None] | None = None,
) -> TrialResult:
    """Let every robot follow a script from its own start, and measure; `look` is called at the start and after every step.

    All gait clocks begin at 0, and go on together after a fall: a mean over robots is then one of robots in step. A trial that
    is interrupted (KeyboardInterrupt) returns what there is so far, or raises on where that is nothing.
    """
    count, dt = environment.num_envs, environment.dt
    steps, settle = round(seconds / dt), round(min(2.0, seconds / 2) / dt)
    watch = _Watch(environment, settle)
    commands, done_steps = environment.commands, 0
    asked = script.at(0.0)
    commands.ask(torch.tensor(asked))
    commands.fixed_phase = 0.0
    observation, _ = environment.reset([seed + i for i in range(count)])
    is_first = torch.ones(count, dtype=torch.bool)
    fallen = torch.zeros(count, dtype=torch.bool)
    look = look or _look_away
    look()
    try:
        for step in range(steps):
            if script.at(step * dt) != asked:
                asked = script.at(step * dt)
                commands.ask(torch.tensor(asked))
                watch.ask_anew()
            commands.fixed_phase = ((step + 1) * dt * environment.task.commands.gait_hz) % 1.0
            if script.push and step == steps // 2:
                _push(environment, script.push)
            environment.listener = watch.note
            done = environment.step(act(observation, is_first))
            fallen |= done.terminated
            observation, is_first = done.observation, done.terminated | done.truncated
            done_steps = step + 1
            look()
    except KeyboardInterrupt:
        if done_steps <= settle:
            raise
    finally:
        commands.ask(None)
        commands.fixed_phase, environment.listener = None, None
    return watch.result(script.name, done_steps, int(fallen.sum()), asked, complete=done_steps == steps)


def _look_away() -> None:
    """Nobody wants to see."""


def _push(environment: RobotVector, speed: float) -> None:
    velocity = torch.zeros_like(environment.simulation.qvel)
    velocity[:, environment.scene.base_dof + 1] = speed
    environment.simulation.push(velocity)


class _Watch:
    """Notes what every robot does in every step, as it was before any began again."""

    def __init__(self, environment: RobotVector, settle: int) -> None:
        self.environment, self.settle = environment, settle
        self.rows: dict[str, list[Tensor]] = {}
        self._legs = LegGaps(environment.scene)
        simulation = environment.simulation
        assert isinstance(simulation, CpuSimulation), "trials are measured in MuJoCo"
        if self._legs.has_legs:
            self._places, self._turns = simulation.batch.field("geom_xpos"), simulation.batch.field("geom_xmat")
        self._steps = 0
        task = environment.task.commands
        self._goals = None if task.goal == "velocity" else GoalWatch(task, environment.dt)

    def ask_anew(self) -> None:
        """Something else is asked for from here on."""
        if self._goals is not None:
            self._goals.ask()

    def note(self, state: Any) -> None:
        """Take in one step."""
        turn = state.base_angular_velocity[:, 2:]
        seen = {
            "velocity": torch.cat([state.base_linear_velocity[:, :2], turn], 1),
            "command": state.memory.command,
            "height": state.base_height,
            "torque": state.torques,
            "joint_position": state.joint_position,
            "joint_velocity": state.joint_velocity,
            "feet_height": state.feet_height,
            "feet_force": state.feet_force.norm(dim=-1),
            "feet_speed": state.feet_velocity[..., :2].norm(dim=-1),
            "standing": state.feet_in_contact,
            "landed": state.memory.landed,
        }
        if len(self.environment.scene.feet) > 1:
            seen["feet_apart"] = _nearest(state.feet_position[..., :2])
        if self._legs.has_legs and self._steps % GAPS_EVERY == 0:
            count = len(self._places)
            gaps = self._legs.measure(self._places.reshape(count, -1, 3), self._turns.reshape(count, -1, 9))
            seen["leg_gap"] = torch.from_numpy(gaps).float()
        self._steps += 1
        if self._goals is not None:
            self._goals.note(state)
        for name, value in seen.items():
            self.rows.setdefault(name, []).append(value.clone())

    def result(self, name: str, steps: int, falls: int, asked: tuple[float, float, float], *, complete: bool) -> TrialResult:
        """Return the numbers of so many steps."""
        seconds = steps * self.environment.dt
        every = {key: torch.stack(rows).float() for key, rows in self.rows.items()}  # (T, N, ...)
        gaps = every.pop("leg_gap", None)
        late = {key: value[self.settle : steps] for key, value in every.items()}
        gaps = None if gaps is None else gaps[-(-self.settle // GAPS_EVERY) :]
        velocity, command = late["velocity"], late["command"]
        standing, landed = late["standing"], late["landed"]
        swings = late["feet_height"][standing == 0]
        speed = float(velocity[..., :2].mean(0).norm(dim=-1).mean())
        power = float((late["torque"] * late["joint_velocity"]).abs().sum(-1).mean())
        weight = float(self.environment.scene.model.body_mass.sum()) * GRAVITY
        duration = len(velocity) * self.environment.dt
        scene = self.environment.scene
        columns = {"velocity": MOTION, "command": MOTION_OF[self.environment.task.commands.goal], "height": ("base",)}
        columns |= dict.fromkeys(("joint_position", "joint_velocity", "torque"), scene.joints)
        columns |= dict.fromkeys(("feet_height", "feet_force") if scene.feet else (), scene.feet)
        return TrialResult(
            name=name,
            robots=self.environment.num_envs,
            seconds=seconds,
            falls=falls,
            velocity=_triple(velocity.mean((0, 1))),
            command=_triple(command.mean((0, 1))),
            error=_triple((command if self._goals else velocity - command).abs().mean((0, 1))),
            speed=speed,
            slip=_mean_where(late["feet_speed"], standing > 0),
            foot_lift=float(swings.quantile(0.95)) if 0 < swings.numel() <= 16_000_000 else 0.0,
            steps_per_second=float(landed.sum(0).mean()) / duration,
            stance=float(standing.mean()),
            alternation=_alternation(landed > 0),
            power=power,
            cost_of_transport=power / (weight * speed) if speed > 0.05 else math.inf,
            torque_peak=float(every["torque"].abs().max()),
            feet_apart=float(late["feet_apart"].quantile(0.01)) if "feet_apart" in late else None,
            leg_gap=None if gaps is None or not len(gaps) else float(gaps.quantile(0.01)),
            leg_clash=None if gaps is None or not len(gaps) else float((gaps <= 0).float().mean()),
            goal=None if self._goals is None else self._goals.result(asked),
            complete=complete,
            series={key: every[key][:steps].mean(1).numpy() for key in columns},
            first={key: every[key][:steps, 0].numpy() for key in columns},
            columns=columns,
        )


def _nearest(places: Tensor) -> Tensor:
    """(N, F, 2) → the distance of the nearest two, (N,)"""
    first, second = torch.triu_indices(places.shape[1], places.shape[1], 1)
    return (places[:, first] - places[:, second]).norm(dim=-1).amin(-1)


def _triple(values: Tensor) -> tuple[float, float, float]:
    forward, sideways, turn = values.tolist()
    return forward, sideways, turn


def _mean_where(values: Tensor, where: Tensor) -> float:
    return float(values[where].mean()) if bool(where.any()) else 0.0


def _alternation(landed: Tensor) -> float:
    """(T, N, F) → the share of touch-downs by another foot than the last one's; feet that land together count as one."""
    changes = total = 0
    for robot in range(landed.shape[1]):
        events = [tuple(row.nonzero()[:, 0].tolist()) for row in landed[:, robot] if bool(row.any())]
        total += max(0, len(events) - 1)
        changes += sum(not set(one) & set(two) for one, two in pairwise(events))
    return changes / total if total else 0.0


def read_scripts(data: Sequence[Mapping[str, Any]]) -> list[Script]:
    """Read scripts from plain data: [{name, commands: [[second, forward, sideways, turn], ...], push}]."""
    scripts = []
    for index, entry in enumerate(data):
        where = f"script {index + 1}"
        unknown = set(entry) - {"name", "commands", "push"}
        if unknown or "name" not in entry or "commands" not in entry:
            said = f"unknown key '{sorted(unknown)[0]}'" if unknown else "needs name and commands"
            raise UserError(f"{where}: {said} (known: name, commands, push)")
        rows = entry["commands"]
        if not rows or any(len(row) != 4 for row in rows) or rows[0][0] != 0:
            raise UserError(f"{where}: commands: must be rows of [second, forward, sideways, turn], the first at second 0")
        commands = tuple(tuple(float(number) for number in row) for row in rows)
        scripts.append(Script(str(entry["name"]), commands, float(entry.get("push", 0.0))))  # type: ignore[arg-type] # rows of four
    return scripts

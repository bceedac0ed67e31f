"""What is drawn beside a robot: velocities asked for and done, contact forces, the ground it sees, where it is to go.

    asked, done   ───▶   half a metre for each m/s, from above the base; to a place to go to it points
    turns         ⌒▶     an arc from where the robot faces to where it would in a second
    forces        │▲     the robot's weight is METRES_OF_WEIGHT long

Everything is computed from the simulation's state, and nothing changes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np
import torch

from etude.robots.environment import RobotVector
from etude.robots.rotations import from_yaw, rotate
from etude.robots.terms.observations import scanned_points
from etude.robots.terms.table import options_of

_mujoco: Any = mujoco
METRES_PER_SPEED = 0.5
METRES_OF_WEIGHT = 0.6
TURN_RADIUS = 0.25
FURTHEST_TURN = 5.5
"""Radians of an arc: one that goes all the way round can't be read."""
BETWEEN = 0.05
"""Metres by which what is done is drawn below what is asked: often they are the same."""
SMALLEST = 0.02
"""m/s, rad/s and metres below which there is nothing to draw."""
SMALLEST_SHARE = 0.002
"""Of the robot's weight."""
MOST_FORCES = 100
SCAN_OPTIONS = ("length", "width", "step")

Velocity = tuple[float, float, float]
"""Forward, sideways, turn."""


@dataclass(frozen=True)
class Marks:
    """One moment's marks, in the world; None or no rows where there is nothing to show."""

    asked: np.ndarray | None
    """An arrow's start and end. (2, 3)"""
    done: np.ndarray | None
    asked_turn: np.ndarray | None
    """Points of an arc, the last two of which are its head. (K, 3)"""
    done_turn: np.ndarray | None
    forces: np.ndarray
    """Where each contact pushes the robot, as an arrow. (C, 2, 3)"""
    newtons: np.ndarray
    """The same forces, N. (C, 3)"""
    scan: np.ndarray
    """Points of the ground that the task's height scan looks at. (K, 3)"""
    goal: np.ndarray | None
    """The place to go to. (3,)"""
    motion: np.ndarray | None
    """Where the motion to follow has the robot. (nq,)"""


class Marker:
    """Makes the marks of one robot, the first of its environment."""

    def __init__(self, robots: RobotVector) -> None:
        self._robots, scene = robots, robots.scene
        self._root = int(scene.model.body_rootid[scene.base_body])
        self._weight = float(scene.model.body_subtreemass[self._root]) * float(np.linalg.norm(scene.model.opt.gravity))
        self._above = min(max(0.8 * scene.description.height, 0.2), 0.7)
        self.scan_options = _scan_options(robots.task.observations)
        """How the task's height scan looks; None where it has none."""

    def take(self, data: Any, done: Velocity) -> Marks:
        """Return the marks of a moment: `data` is MuJoCo's, derived quantities included, `done` how the robot moves."""
        robots, state = self._robots, self._robots.state
        base = state.base_position[0].double().numpy()
        top, below = (base + np.array([0.0, 0.0, height]) for height in (self._above, self._above - BETWEEN))
        asked, yaw = robots.memory.command[0].tolist(), float(state.yaw[0])
        goes_to_place = robots.task.commands.goal == "position"
        ahead = self._ahead(asked)
        way = ahead / max(float(np.linalg.norm(ahead)), 1.0) if goes_to_place else ahead
        forces, newtons = self._forces(data)
        return Marks(
            asked=_arrow(top, way, METRES_PER_SPEED),
            done=_arrow(below, self._ahead(done), METRES_PER_SPEED),
            asked_turn=None if goes_to_place else _arc(top, yaw, asked[2], TURN_RADIUS),
            done_turn=_arc(below, yaw, done[2], TURN_RADIUS),
            forces=forces,
            newtons=newtons,
            scan=self._scan(),
            goal=self._goal(base + ahead) if goes_to_place else None,
            motion=self._motion(),
        )

    def _ahead(self, velocity: Any) -> np.ndarray:
        """A velocity in the plane, seen from the robot's heading, in the world. (3,)"""
        plane = torch.tensor([[velocity[0], velocity[1], 0.0]])
        return rotate(from_yaw(self._robots.state.yaw), plane)[0].double().numpy()

    def _forces(self, data: Any) -> tuple[np.ndarray, np.ndarray]:
        model, found = self._robots.scene.model, []
        for number in range(data.ncon):
            contact = data.contact[number]
            one, other = (int(model.body_rootid[model.geom_bodyid[geom]]) for geom in contact.geom)
            if one == other:
                continue  # legs that touch each other: such a pair comes to nothing
            along = np.zeros(6)
            _mujoco.mj_contactForce(model, data, number, along)
            force = contact.frame.reshape(3, 3).T @ along[:3]  # what the first geom does to the second
            found.append((contact.pos.copy(), force if other == self._root else -force))
        strong = [(at, force) for at, force in found if np.linalg.norm(force) > SMALLEST_SHARE * self._weight]
        if not strong:
            return np.zeros((0, 2, 3)), np.zeros((0, 3))
        at, newtons = (np.array(each[:MOST_FORCES]) for each in zip(*strong, strict=True))
        return np.stack([at, at + newtons * (METRES_OF_WEIGHT / self._weight)], 1), newtons

    def _scan(self) -> np.ndarray:
        if self.scan_options is None:
            return np.zeros((0, 3))
        return scanned_points(self._robots.state, **self.scan_options)[0].double().numpy()

    def _goal(self, asked: np.ndarray) -> np.ndarray:
        """The task's place, or the one that somebody asks for, on the ground."""
        terrain, is_own = self._robots.terrain, self._robots.commands.fixed is None
        place = self._robots.memory.goal[0] if is_own else torch.tensor(asked[:2], dtype=torch.float32)
        return np.array([*place.tolist(), 0.0 if terrain is None else float(terrain.height(place))])

    def _motion(self) -> np.ndarray | None:
        """The motion's height, tilt and joints, where the robot is and as it faces."""
        robots, motion = self._robots, self._robots.motion
        if motion is None:
            return None
        scene, state = robots.scene, robots.state
        qpos, first = robots.simulation.qpos.clone(), robots.scene.base_qpos
        ground = 0.0 if robots.terrain is None else robots.terrain.height(state.base_position[:, :2])
        qpos[:, first + 2] = scene.start_height + ground
        places = (scene, state.joint_qpos, state.joint_dofs)
        posed, _ = motion.reset_state(robots.memory.phase, qpos, robots.simulation.qvel, places)
        return posed[0].double().numpy()


def velocity_of(robots: RobotVector) -> Velocity:
    """Return how the first robot moves, seen from its heading: forward and sideways in m/s, turn in rad/s."""
    state = robots.state
    forward, sideways = state.base_linear_velocity[0, :2].nan_to_num().tolist()
    return forward, sideways, float(state.base_angular_velocity[0, 2].nan_to_num())


def _arrow(start: np.ndarray, way: np.ndarray, length: float) -> np.ndarray | None:
    return None if np.linalg.norm(way) < SMALLEST else np.stack([start, start + length * way])


def _arc(middle: np.ndarray, yaw: float, turn: float, radius: float) -> np.ndarray | None:
    """Points from where the robot faces to where it would after a second of turning."""
    if abs(turn) < SMALLEST:
        return None
    sweep = max(-FURTHEST_TURN, min(turn, FURTHEST_TURN))
    angles = yaw + np.linspace(0.0, sweep, 3 + math.ceil(abs(sweep) * 6))
    return middle + radius * np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], 1)


def _scan_options(groups: Any) -> dict[str, float] | None:
    """Return the options of the first height scan that a network of the task sees."""
    for name, terms in groups.items():
        options = terms.get("height_scan", False)
        if options is not False:
            given = options_of(options, f"environment.robot.observations.{name}.height_scan")
            return {key: given[key] for key in SCAN_OPTIONS if key in given}
    return None

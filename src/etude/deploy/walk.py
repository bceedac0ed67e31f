"""An exported policy walks in plain MuJoCo, from its metadata.json, policy.onnx and robot.xml alone.

This file needs numpy, onnxruntime and (for `walk`) mujoco, and nothing of Etude: `Controller` is what a real robot would run.

    python walk.py FOLDER --seconds 10 --command 0.5 0 0
    python walk.py FOLDER --level 2    # where the ground is uneven: the third row of every kind
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class WalkError(Exception):
    """This export can't be walked, and why."""


class Sensed(NamedTuple):
    """What a robot's sensors say."""

    angular_velocity: np.ndarray
    """Of the base, in its own frame, rad/s: a gyroscope. (3,)"""
    gravity: np.ndarray
    """Its direction in the base's frame: (0, 0, −1) when upright. (3,)"""
    joint_position: np.ndarray
    """rad, in the order of metadata.json. (J,)"""
    joint_velocity: np.ndarray
    """rad/s. (J,)"""
    linear_velocity: np.ndarray | None = None
    """Of the base, in its own frame, m/s: what an estimator says, for a policy that sees it. (3,)"""
    base_height: float | None = None
    """Of the base above the ground, m, for a policy that sees it."""
    heights: np.ndarray | None = None
    """Of the base above the ground at each point of `scan_points`, m, for a policy that scans. (K,)"""


class Controller:
    """From what a robot senses and is asked for to targets for its motors, once every `dt` seconds."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime  # type: ignore[import-not-found] # an extra

        self.metadata = metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        self.robot = robot = metadata["robot"]
        if robot is None:
            raise WalkError(f"{metadata['environment']} is no robot's task")
        if robot["commands"]["goal"] == "jump":
            raise WalkError("the policy jumps (commands.goal=jump), and only walking is tried from files: use `etude trials`")
        if metadata["wrappers"]:
            raise WalkError("the policy was trained behind wrappers, which are not in the export")
        joints = robot["joints"]
        self.joints = [joint["name"] for joint in joints]
        self.default = np.array([joint["default_position"] for joint in joints])
        # A motor that holds a velocity is asked for none by an action of 0.
        self.offset = np.where([joint["control"] == "position" for joint in joints], self.default, 0.0)
        self.scale = np.array([joint["action_scale"] for joint in joints])
        self.dt = robot["timestep"] * robot["decimation"]
        self._acts = np.array([joint["acts"] for joint in joints])
        self._stride = np.array([joint["stride"] for joint in joints])
        self._foot = [joint["foot"] for joint in joints]
        self.scan = scan_points(robot)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "policy.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.reset()
        still = (np.zeros(3), np.zeros(3), self.default, np.zeros(len(joints)))
        nothing = Sensed(*still, np.zeros(3), 0.0, None if self.scan is None else np.zeros(len(self.scan)))
        known = self._values(nothing, np.zeros(3))
        for terms in robot["observations"].values():
            for term in terms:
                if term["term"] not in known:
                    raise WalkError(
                        f"the policy sees '{term['term']}', which walking can't compute (it can: {', '.join(known)})"
                    )

    def reset(self) -> None:
        """Begin anew: nothing was done or seen before."""
        self.action = np.zeros(len(self.joints))
        self.phase = 0.0
        self._frames: list[dict[str, np.ndarray]] = []
        self._memory = {part["input"]: np.zeros((1, *part["shape"]), part["dtype"]) for part in self.metadata["memory"]}

    def observe(self, sensed: Sensed, command: np.ndarray) -> dict[str, np.ndarray]:
        """Take in a step and return the policy's inputs, (1, size) each."""
        values = self._values(sensed, command)
        inputs = {}
        self._frames.append(values)
        deepest = max(term["history"] for terms in self.robot["observations"].values() for term in terms)
        self._frames = self._frames[-deepest:]
        for name, terms in self.robot["observations"].items():
            parts = []
            for term in terms:
                for past in range(term["history"] - 1, -1, -1):
                    # Before the first step everything was as it is then.
                    value = self._frames[max(len(self._frames) - 1 - past, 0)][term["term"]]
                    limit = math.inf if term["clip"] is None else term["clip"]
                    parts.append(np.clip(value, -limit, limit) * term["scale"])
            inputs[name] = np.concatenate(parts)[None].astype(np.float32)
        return inputs

    def step(self, sensed: Sensed, command: np.ndarray) -> np.ndarray:
        """Return targets for the motors, (J,): positions in rad, or velocities in rad/s."""
        inputs = self.observe(sensed, command) | self._memory
        action, *memory = self._session.run(None, inputs)
        self._memory = dict(zip(self._memory, memory, strict=True))
        self.action = np.zeros(len(self.joints))  # anew: earlier ones are part of the history
        self.action[self._acts] = np.clip(action[0], -1.0, 1.0)
        targets = self.offset + self.scale * self.action + self.robot["stride"] * self._stride_now(command)
        self.phase = (self.phase + self.robot["gait"]["hz"] * self.dt) % 1.0
        return targets

    def _stride_now(self, command: np.ndarray) -> np.ndarray:
        """How far joints would be off their default positions by the gait's clock, (J,)."""
        offsets = self.robot["gait"]["offsets"]
        ahead = np.array([0.0 if foot is None else offsets[foot] for foot in self._foot])
        return self._stride * np.maximum(-np.sin(2 * math.pi * (self.phase + ahead)), 0.0) * float(np.any(command))

    def _values(self, sensed: Sensed, command: np.ndarray) -> dict[str, np.ndarray]:
        """Every term that can be computed, before clip and scale."""
        angle = 2 * math.pi * self.phase
        feet = 2 * math.pi * (self.phase + np.array(self.robot["gait"]["offsets"]))
        moves = float(np.any(command))
        values = {
            "base_angular_velocity": sensed.angular_velocity,
            "gravity": sensed.gravity,
            "command": np.asarray(command, float),
            "joint_position": sensed.joint_position - self.default,
            "joint_position_measured": sensed.joint_position - self.default,
            "joint_position_absolute": sensed.joint_position,
            "dof_pos_ref_diff": sensed.joint_position - self.default - self._stride_now(command),
            "joint_velocity": sensed.joint_velocity,
            "action": self.action,
            "gait_phase": np.array([math.sin(angle), math.cos(angle)]) * moves,
            "stance_clock": np.maximum(np.sin(feet), 0.0),
            "swing_clock": np.maximum(-np.sin(feet), 0.0),
        }
        if sensed.linear_velocity is not None:
            values["base_linear_velocity"] = sensed.linear_velocity
        if sensed.base_height is not None:
            values["base_height"] = np.array([sensed.base_height])
        if sensed.heights is not None:
            values["height_scan"] = np.clip(sensed.heights - self.robot["standing_height"], -1.0, 1.0)
        return values


def scan_points(robot: dict[str, Any]) -> np.ndarray | None:
    """Return where a policy that scans looks at the ground: ahead and to the left of the base, m, (K, 2); None: it does not."""
    scans = {
        json.dumps(term["options"], sort_keys=True): term["options"]
        for terms in robot["observations"].values()
        for term in terms
        if term["term"] == "height_scan"
    }
    if not scans:
        return None
    if len(scans) > 1:
        raise WalkError("the policy scans the ground in several ways, which walking can't")
    (options,) = scans.values()
    length, width, step = (options.get(key, usual) for key, usual in (("length", 1.6), ("width", 1.0), ("step", 0.1)))
    x = np.arange(round(length / step) + 1) * step - length / 2
    y = np.arange(round(width / step) + 1) * step - width / 2
    return np.stack([each.ravel() for each in np.meshgrid(x, y, indexing="ij")], 1)


class SimulatedRobot:
    """The robot of robot.xml, with sensors and motors, on its ground, in `mj_step`."""

    def __init__(self, folder: Path, robot: dict[str, Any]) -> None:
        import mujoco  # type: ignore[import-untyped] # compiled, without stubs

        self._mujoco: Any = mujoco
        self._mujoco.set_mju_user_warning(lambda _: None)  # it would write them into a file; a robot that blows up has fallen
        self.robot = robot
        learnt = {joint["network"] for joint in robot["joints"]} - {None}
        if learnt:
            raise WalkError(
                f"its motors are networks ({', '.join(sorted(learnt))}), which are not in the export: use `etude trials`"
            )
        self.model = model = self._mujoco.MjModel.from_xml_path(str(folder / robot["file"]))
        self.data = self._mujoco.MjData(model)
        names = [joint["name"] for joint in robot["joints"]]
        self._qpos = np.array([model.joint(name).qposadr[0] for name in names])
        self._dofs = np.array([model.joint(name).dofadr[0] for name in names])
        self._motors = np.array([model.actuator(name).id for name in names])
        free = model.body(robot["base"]).jntadr[0]
        self._base_qpos, self._base_dof = int(model.jnt_qposadr[free]), int(model.jnt_dofadr[free])
        self._scan = scan_points(robot)
        self._heights = None
        if model.nhfield:
            first, rows, columns = int(model.hfield_adr[0]), int(model.hfield_nrow[0]), int(model.hfield_ncol[0])
            field = model.hfield_data[first : first + rows * columns].reshape(rows, columns)
            base = next(
                model.geom_pos[i, 2] for i in range(model.ngeom) if model.geom_type[i] == self._mujoco.mjtGeom.mjGEOM_HFIELD
            )
            self._heights = base + field * model.hfield_size[0, 2]

    def ground(self, points: np.ndarray) -> np.ndarray:
        """Return the height of the ground at points (K, 2), between samples in proportion: (K,)."""
        if self._heights is None:
            return np.zeros(len(points))
        rows, columns = self._heights.shape
        half = self.model.hfield_size[0, :2]
        x = np.clip((points[:, 0] + half[0]) / (2 * half[0]) * (columns - 1), 0, columns - 1.001)
        y = np.clip((points[:, 1] + half[1]) / (2 * half[1]) * (rows - 1), 0, rows - 1.001)
        x0, y0 = x.astype(int), y.astype(int)
        fx, fy, z = x - x0, y - y0, self._heights
        near = z[y0, x0] * (1 - fx) + z[y0, x0 + 1] * fx
        far = z[y0 + 1, x0] * (1 - fx) + z[y0 + 1, x0 + 1] * fx
        return near * (1 - fy) + far * fy

    def place(self, x: float = 0.0, y: float = 0.0) -> None:
        """Put the robot at rest in its default pose, just over the ground."""
        self._mujoco.mj_resetData(self.model, self.data)
        first = self._base_qpos
        height = self.robot["start_height"] + float(self.ground(np.array([[x, y]]))[0])
        self.data.qpos[first : first + 7] = [x, y, height, 1, 0, 0, 0]
        self.data.qpos[self._qpos] = [joint["default_position"] for joint in self.robot["joints"]]

    def move(self, targets: np.ndarray) -> None:
        """Let the motors hold these targets until the next action."""
        self.data.ctrl[self._motors] = targets
        for _ in range(self.robot["decimation"]):
            self._limit_torques()
            self._mujoco.mj_step(self.model, self.data)

    def _limit_torques(self) -> None:
        """Motors with a velocity limit can do less the faster they turn."""
        for joint, motor, dof in zip(self.robot["joints"], self._motors, self._dofs, strict=True):
            if joint["velocity_limit"] is None:
                continue
            speed, stall = self.data.qvel[dof] / joint["velocity_limit"], joint["stall_torque"]
            most = stall if joint["effort_limit"] is None else min(stall, joint["effort_limit"])
            down, up = max(stall * (-1 - speed), -most), min(stall * (1 - speed), most)
            self.model.actuator_forcerange[motor] = [min(down, 0.0), max(up, 0.0)]

    def sense(self) -> Sensed:
        """Read the sensors."""
        turn = self.data.qvel[self._base_dof + 3 : self._base_dof + 6].copy()
        down = self._in_base_frame(np.array([0.0, 0.0, -1.0]))
        joints = (self.data.qpos[self._qpos].copy(), self.data.qvel[self._dofs].copy())
        velocity = self._in_base_frame(self.data.qvel[self._base_dof : self._base_dof + 3])
        heights = None if self._scan is None else self._scan_heights(self._scan)
        return Sensed(turn, down, *joints, velocity, self._height(), heights)

    def _height(self) -> float:
        x, y, z = self.data.qpos[self._base_qpos : self._base_qpos + 3]
        return float(z - self.ground(np.array([[x, y]]))[0])

    def _scan_heights(self, points: np.ndarray) -> np.ndarray:
        x, y, z, qw, qx, qy, qz = self.data.qpos[self._base_qpos : self._base_qpos + 7]
        yaw = math.atan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy * qy + qz * qz))
        turned = points @ np.array([[math.cos(yaw), math.sin(yaw)], [-math.sin(yaw), math.cos(yaw)]])
        return z - self.ground(turned + np.array([x, y]))

    def place_of(self, ahead: float, left: float, turn: float) -> np.ndarray:
        """Return what lies there, seen from the robot, in the world: x, y and a heading. (3,)"""
        x, y, yaw = self._pose()
        cos, sin = math.cos(yaw), math.sin(yaw)
        return np.array([x + cos * ahead - sin * left, y + sin * ahead + cos * left, yaw + turn])

    def way_to(self, goal: np.ndarray) -> np.ndarray:
        """Return a place in the world as the task shows it: metres ahead and to the left, and the turn to its heading. (3,)"""
        commands = self.robot["commands"]
        x, y, yaw = self._pose()
        away = goal[:2] - (x, y)
        cos, sin = math.cos(yaw), math.sin(yaw)
        ahead, left = (cos * away[0] + sin * away[1], cos * away[1] - sin * away[0])
        still = commands["still_within"]
        is_there = math.hypot(ahead, left) <= still * commands["reached"]
        turn = (goal[2] - yaw + math.pi) % (2 * math.pi) - math.pi
        turns = commands["goal"] == "pose" and abs(turn) > still * commands["facing"]
        return np.array([0.0 if is_there else ahead, 0.0 if is_there else left, turn if turns else 0.0])

    def _pose(self) -> tuple[float, float, float]:
        x, y, _, w, qx, qy, qz = self.data.qpos[self._base_qpos : self._base_qpos + 7]
        return x, y, math.atan2(2 * (w * qz + qx * qy), 1 - 2 * (qy * qy + qz * qz))

    def velocity(self) -> np.ndarray:
        """Forward, sideways and turn, as commands have them. (3,)"""
        linear = self._in_base_frame(self.data.qvel[self._base_dof : self._base_dof + 3])
        return np.array([linear[0], linear[1], self.data.qvel[self._base_dof + 5]])

    def has_fallen(self) -> bool:
        """Whether it leans too far, is too low, or is nowhere."""
        if not (np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all()):
            return True
        tilt, height = self.robot["fall_tilt"], self.robot["fall_height"]
        leans = tilt is not None and -self._in_base_frame(np.array([0.0, 0.0, -1.0]))[2] < math.cos(tilt)
        return bool(leans or (height is not None and self._height() < height))

    def _in_base_frame(self, vector: np.ndarray) -> np.ndarray:
        w, *xyz = self.data.qpos[self._base_qpos + 3 : self._base_qpos + 7]
        twist = 2 * np.cross(xyz, vector)
        return vector - w * twist + np.cross(xyz, twist)


def usual_command(robot: dict[str, Any]) -> tuple[float, float, float]:
    """Return what a robot is asked for in a check: 0.5 m/s ahead, or as near to that as it was trained for, or else a turn.

    Where it goes to places, that is one 1.5 m ahead, and a heading a little to the left.
    """
    if robot["commands"]["goal"] != "velocity":
        near, far = robot["commands"]["distance"]
        return min(max(1.5, near), far), 0.0, min(0.8, robot["commands"]["arrival"] or 0.0)
    low, high = robot["commands"]["forward"]
    forward = min(max(0.5, low), high)
    if forward:
        return forward, 0.0, 0.0
    return 0.0, 0.0, max(robot["commands"]["turn"], key=abs)


def walk(folder: Path, seconds: float, command: tuple[float, float, float] | None = None, *, level: int = 0) -> dict[str, Any]:
    """Let the robot follow a command; it begins again when it falls. The mean velocity leaves out the first two seconds.

    On uneven ground it does so on each kind in turn, from the middle of a tile of this level; `places` has them.
    """
    controller = Controller(folder)
    robot = SimulatedRobot(folder, controller.robot)
    asked = usual_command(controller.robot) if command is None else command
    ground, goes = controller.robot["ground"], controller.robot["commands"]["goal"] != "velocity"
    starts = [start for start in ground if start["level"] == level]
    if ground and not starts:
        raise WalkError(f"level {level}: the ground has levels 0 to {max(start['level'] for start in ground)}")
    places = [
        {"kind": start["kind"], **_walk_from(controller, robot, seconds, np.array(asked), (start["x"], start["y"]))}
        for start in starts or [{"kind": "flat", "x": 0.0, "y": 0.0}]
    ]
    velocity = np.mean([place.pop("mean") for place in places], 0)
    return {
        "seconds": max(1, round(seconds / controller.dt)) * controller.dt,
        "command": list(asked),
        "falls": sum(place["falls"] for place in places),
        "velocity": dict(zip(("forward", "sideways", "turn"), velocity.tolist(), strict=True)),
        "followed": float(np.mean([place["followed"] for place in places])) if goes else _followed(velocity, asked),
        "goal": controller.robot["commands"]["goal"],
        "places": places,
    }


def _walk_from(
    controller: Controller, robot: SimulatedRobot, seconds: float, asked: np.ndarray, start: tuple[float, float]
) -> dict[str, Any]:
    steps = max(1, round(seconds / controller.dt))
    settle = round(min(2.0, seconds / 2) / controller.dt)
    falls, seen = 0, []
    goes = controller.robot["commands"]["goal"] != "velocity"
    robot.place(*start)
    goal = robot.place_of(*asked)
    controller.reset()
    for step in range(steps):
        robot.move(controller.step(robot.sense(), robot.way_to(goal) if goes else asked))
        if robot.has_fallen():
            falls += 1
            robot.place(*start)
            controller.reset()
        elif step >= settle:
            seen.append(robot.velocity())
    mean = np.mean(seen, 0) if seen else np.zeros(3)
    if not goes:
        return {"falls": falls, "followed": _followed(mean, asked), "mean": mean}
    left = robot.way_to(goal)
    share = 1 - float(np.hypot(*left[:2])) / max(float(np.hypot(*asked[:2])), 1e-9)
    return {"falls": falls, "followed": share, "left": left.tolist(), "mean": mean}


def _followed(velocity: np.ndarray, asked: Any) -> float:
    """Which share of what was asked for was done, along it: 1 is all; 1 too where nothing was asked for."""
    size = float(np.dot(asked, asked))
    return float(np.dot(velocity, asked)) / size if size > 0 else 1.0


def _main() -> None:
    parser = argparse.ArgumentParser(description="Let an exported robot walk in MuJoCo.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--command", type=float, nargs=3, metavar=("FORWARD", "SIDEWAYS", "TURN"))
    parser.add_argument("--level", type=int, default=0, help="of uneven ground, from 0, the easiest")
    given = parser.parse_args()
    command = None if given.command is None else tuple(given.command)
    print(json.dumps(walk(given.folder, given.seconds, command, level=given.level), indent=2))


if __name__ == "__main__":
    _main()

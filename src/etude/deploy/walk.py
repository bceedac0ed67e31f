"""An exported policy walks in plain MuJoCo, from its metadata.json, policy.onnx and robot.xml alone.

This file needs numpy, onnxruntime and (for `walk`) mujoco, and nothing of Etude: `Controller` is what a real robot would run.

    python walk.py FOLDER --seconds 10 --command 0.5 0 0
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


class Controller:
    """From what a robot senses and is asked for to targets for its motors, once every `dt` seconds."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime  # type: ignore[import-not-found] # an extra

        self.metadata = metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        self.robot = robot = metadata["robot"]
        if robot is None:
            raise WalkError(f"{metadata['environment']} is no robot's task")
        if metadata["wrappers"]:
            raise WalkError("the policy was trained behind wrappers, which are not in the export")
        joints = robot["joints"]
        self.joints = [joint["name"] for joint in joints]
        self.default = np.array([joint["default_position"] for joint in joints])
        # A motor that holds a velocity is asked for none by an action of 0.
        self.offset = np.where([joint["control"] == "position" for joint in joints], self.default, 0.0)
        self.scale = np.array([joint["action_scale"] for joint in joints])
        self.dt = robot["timestep"] * robot["decimation"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "policy.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.reset()
        nothing = Sensed(np.zeros(3), np.zeros(3), self.default, np.zeros(len(joints)))
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
        self.action = np.clip(action[0], -1.0, 1.0)
        self.phase = (self.phase + self.robot["gait"]["hz"] * self.dt) % 1.0
        return self.offset + self.scale * self.action

    def _values(self, sensed: Sensed, command: np.ndarray) -> dict[str, np.ndarray]:
        """Every term that can be computed, before clip and scale."""
        angle = 2 * math.pi * self.phase
        feet = 2 * math.pi * (self.phase + np.array(self.robot["gait"]["offsets"]))
        moves = float(np.any(command))
        return {
            "base_angular_velocity": sensed.angular_velocity,
            "gravity": sensed.gravity,
            "command": np.asarray(command, float),
            "joint_position": sensed.joint_position - self.default,
            "joint_position_absolute": sensed.joint_position,
            "joint_velocity": sensed.joint_velocity,
            "action": self.action,
            "gait_phase": np.array([math.sin(angle), math.cos(angle)]) * moves,
            "stance_clock": np.maximum(np.sin(feet), 0.0),
            "swing_clock": np.maximum(-np.sin(feet), 0.0),
        }


class SimulatedRobot:
    """The robot of robot.xml, with sensors and motors, in `mj_step`."""

    def __init__(self, folder: Path, robot: dict[str, Any]) -> None:
        import mujoco  # type: ignore[import-untyped] # compiled, without stubs

        self._mujoco: Any = mujoco
        self._mujoco.set_mju_user_warning(lambda _: None)  # it would write them into a file; a robot that blows up has fallen
        self.robot = robot
        self.model = model = self._mujoco.MjModel.from_xml_path(str(folder / robot["file"]))
        self.data = self._mujoco.MjData(model)
        names = [joint["name"] for joint in robot["joints"]]
        self._qpos = np.array([model.joint(name).qposadr[0] for name in names])
        self._dofs = np.array([model.joint(name).dofadr[0] for name in names])
        self._motors = np.array([model.actuator(name).id for name in names])
        free = model.body(robot["base"]).jntadr[0]
        self._base_qpos, self._base_dof = int(model.jnt_qposadr[free]), int(model.jnt_dofadr[free])

    def place(self) -> None:
        """Put the robot at rest in its default pose, just over the ground."""
        self._mujoco.mj_resetData(self.model, self.data)
        first = self._base_qpos
        self.data.qpos[first : first + 7] = [0, 0, self.robot["start_height"], 1, 0, 0, 0]
        self.data.qpos[self._qpos] = [joint["default_position"] for joint in self.robot["joints"]]

    def move(self, targets: np.ndarray) -> None:
        """Let the motors hold these targets until the next action."""
        self.data.ctrl[self._motors] = targets
        for _ in range(self.robot["decimation"]):
            self._mujoco.mj_step(self.model, self.data)

    def sense(self) -> Sensed:
        """Read the sensors."""
        turn = self.data.qvel[self._base_dof + 3 : self._base_dof + 6].copy()
        down = self._in_base_frame(np.array([0.0, 0.0, -1.0]))
        return Sensed(turn, down, self.data.qpos[self._qpos].copy(), self.data.qvel[self._dofs].copy())

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
        return bool(leans or (height is not None and self.data.qpos[self._base_qpos + 2] < height))

    def _in_base_frame(self, vector: np.ndarray) -> np.ndarray:
        w, *xyz = self.data.qpos[self._base_qpos + 3 : self._base_qpos + 7]
        twist = 2 * np.cross(xyz, vector)
        return vector - w * twist + np.cross(xyz, twist)


def walk(folder: Path, seconds: float, command: tuple[float, float, float] = (0.5, 0.0, 0.0)) -> dict[str, Any]:
    """Let the robot follow a command; it begins again when it falls. The mean velocity leaves out the first two seconds."""
    controller = Controller(folder)
    robot = SimulatedRobot(folder, controller.robot)
    steps = max(1, round(seconds / controller.dt))
    settle = round(min(2.0, seconds / 2) / controller.dt)
    asked, falls, seen = np.array(command), 0, []
    robot.place()
    for step in range(steps):
        robot.move(controller.step(robot.sense(), asked))
        if robot.has_fallen():
            falls += 1
            robot.place()
            controller.reset()
        elif step >= settle:
            seen.append(robot.velocity())
    forward, sideways, turn = np.mean(seen, 0).tolist() if seen else (0.0, 0.0, 0.0)
    return {
        "seconds": steps * controller.dt,
        "command": list(command),
        "falls": falls,
        "velocity": {"forward": forward, "sideways": sideways, "turn": turn},
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description="Let an exported robot walk in MuJoCo.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--command", type=float, nargs=3, default=(0.5, 0.0, 0.0), metavar=("FORWARD", "SIDEWAYS", "TURN"))
    given = parser.parse_args()
    print(json.dumps(walk(given.folder, given.seconds, tuple(given.command)), indent=2))


if __name__ == "__main__":
    _main()

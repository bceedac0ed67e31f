"""Motions that are made: feet that sweep back on the ground and swing ahead above it, and joints that put them there."""

from __future__ import annotations

from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.config.robots import MotionConfig
from etude.errors import UserError
from etude.robots.motions.motion import Clip
from etude.robots.scene import START_MARGIN, Scene

_mujoco: Any = mujoco
GAITS = ("trot", "pace", "bound")
FPS = 50.0
_TRIES, _DAMPING, _NEAR = 60, 1e-4, 1e-3


def make_gait(config: MotionConfig, scene: Scene) -> Clip:
    """Return a stride of this gait straight ahead: (frames, ...) at 50 a second."""
    frames = max(4, round(config.stride_s * FPS))
    data = _mujoco.MjData(scene.model)
    feet = [_place(scene, data, foot) for foot in scene.feet]
    data.qpos[:] = scene.model.qpos0
    data.qpos[scene.base_qpos : scene.base_qpos + 7] = [0, 0, scene.start_height - START_MARGIN, 1, 0, 0, 0]
    data.qpos[scene.qpos_address] = scene.default_pose
    _mujoco.mj_forward(scene.model, data)
    home = np.array([foot() for foot, _ in feet])
    shift = _shift(config, scene, home)
    legs = [np.flatnonzero(scene.foot_of_joint == foot) for foot in range(len(feet))]
    joints = np.zeros((frames, len(scene.joints)))
    for frame in range(frames):
        for foot, (place, jacobian) in enumerate(feet):
            target = home[foot] + _offset(config, (frame / frames + shift[foot]) % 1.0)
            off = _reach(scene, data, target, place, jacobian, legs[foot])
            if off > 0.02:
                raise UserError(
                    f"environment.robot.motion.speed={config.speed:g}: {scene.feet[foot]} can't step so far in "
                    f"stride_s={config.stride_s:g}; lower one of them"
                )
        joints[frame] = data.qpos[scene.qpos_address]
    x = np.arange(frames) / FPS * config.speed
    position = np.stack([x, np.zeros(frames), np.full(frames, scene.start_height - START_MARGIN)], 1)
    return Clip(FPS, position, np.tile([1.0, 0.0, 0.0, 0.0], (frames, 1)), joints, repeats=True)


def _shift(config: MotionConfig, scene: Scene, home: np.ndarray) -> list[float]:
    """By which share of a stride each foot is ahead."""
    if config.file == "trot":
        if not scene.description.gait:
            raise UserError("environment.robot.motion.file=trot: this robot's YAML names no gait")
        return list(scene.description.gait)
    if len(scene.feet) != 4:
        raise UserError(
            f"environment.robot.motion.file={config.file}: is of robots with 4 feet, this one has {len(scene.feet)}"
        )
    middle = home.mean(0)
    left, front = home[:, 1] > middle[1], home[:, 0] > middle[0]
    return [0.0 if (left if config.file == "pace" else front)[foot] else 0.5 for foot in range(4)]


def _offset(config: MotionConfig, phase: float) -> np.ndarray:
    """Where a foot is against the place it stands at: on the ground for the first half of its stride, then above it. (3,)"""
    far = config.speed * config.stride_s
    if phase < 0.5:
        return np.array([far * (0.25 - phase), 0.0, 0.0])
    swing = 2 * phase - 1
    return np.array(
        [far * (0.5 * (swing - np.sin(2 * np.pi * swing) / (2 * np.pi)) - 0.25), 0.0, config.lift * np.sin(np.pi * swing)]
    )


def _place(scene: Scene, data: Any, foot: str) -> tuple[Any, Any]:
    """How to read a foot's place, and its Jacobian (3, nv)."""
    model = scene.model
    geoms = {model.geom(i).name for i in range(model.ngeom)}
    if foot in geoms:
        number, places, ask = model.geom(foot).id, data.geom_xpos, _mujoco.mj_jacGeom
    else:
        number, places, ask = model.body(foot).id, data.xpos, _mujoco.mj_jacBody

    def jacobian() -> np.ndarray:
        found = np.zeros((3, model.nv))
        ask(model, data, found, None, number)
        return found

    return lambda: places[number].copy(), jacobian


def _reach(scene: Scene, data: Any, target: np.ndarray, place: Any, jacobian: Any, leg: np.ndarray) -> float:
    """Bend a leg until its foot is at the target, by damped least squares; returns how far it is off, m."""
    address, dofs, limits = scene.qpos_address[leg], scene.dof_address[leg], scene.position_limits[leg]
    for _ in range(_TRIES):
        off = target - place()
        if np.linalg.norm(off) < _NEAR:
            break
        slope = jacobian()[:, dofs]
        step = slope.T @ np.linalg.solve(slope @ slope.T + _DAMPING * np.eye(3), off)
        data.qpos[address] = np.clip(data.qpos[address] + step, limits[:, 0], limits[:, 1])
        _mujoco.mj_kinematics(scene.model, data)
        _mujoco.mj_comPos(scene.model, data)
    return float(np.linalg.norm(target - place()))

"""Motions from files: npz with names, and CSV as retargeted captures are published. Nothing in them is code."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from etude.config.robots import MotionConfig
from etude.errors import UserError
from etude.robots.motions.gaits import GAITS, make_gait
from etude.robots.motions.motion import Clip
from etude.robots.scene import Scene

_WHERE = "environment.robot.motion.file"
_NAMES: Mapping[str, Sequence[str]] = {
    "fps": ("fps", "frame_rate", "mocap_framerate", "mocap_frame_rate"),
    "position": ("root_pos", "base_position", "trans"),
    "quaternion": ("root_quat", "root_rot", "base_quaternion"),
    "joints": ("joint_pos", "dof_pos", "joint_position"),
    "names": ("joint_names", "dof_names"),
}
"""What each part is called in the files of common tools."""
CSV_FPS = 30.0
"""Of retargeted captures without a rate of their own."""


def load_motion(config: MotionConfig, scene: Scene) -> Clip:
    """Return the motion that a task names: one that is made, or a file's."""
    if config.file in GAITS:
        return make_gait(config, scene)
    path = Path(config.file).expanduser()
    if path.suffix not in (".npz", ".csv"):
        raise UserError(f"{_WHERE}={config.file}: must be {', '.join(GAITS)}, or a .npz or .csv file")
    try:
        clip = _from_npz(path, config, scene) if path.suffix == ".npz" else _from_csv(path, config, scene)
    except OSError as error:
        raise UserError(f"{_WHERE}={config.file}: can't be read: {error.strerror or error}") from error
    arrays = (clip.position, clip.quaternion, clip.joints)
    if len(clip.position) < 3 or any(len(array) != len(clip.position) for array in arrays):
        raise UserError(f"{_WHERE}={config.file}: needs three frames at least, as many of each part")
    if not all(np.isfinite(array).all() for array in arrays):
        raise UserError(f"{_WHERE}={config.file}: has numbers that are none")
    return clip


def _from_npz(path: Path, config: MotionConfig, scene: Scene) -> Clip:
    try:
        with np.load(path, allow_pickle=False) as archive:
            parts = {name: archive[name] for name in archive.files}
    except ValueError as error:
        raise UserError(f"{_WHERE}={config.file}: is no npz of plain arrays: {error}") from error
    if "poses" in parts and _find(parts, "joints") is None:
        raise UserError(
            f"{_WHERE}={config.file}: is a capture of a person (AMASS); retarget it to this robot, and save root_pos, "
            "root_quat, joint_pos and joint_names"
        )
    found = {key: _find(parts, key) for key in _NAMES}
    for key in ("position", "quaternion", "joints"):
        if found[key] is None:
            raise UserError(f"{_WHERE}={config.file}: has no {_NAMES[key][0]} (there are {', '.join(parts)})")
    names = None if found["names"] is None else [str(name) for name in found["names"]]
    rate = config.fps or (CSV_FPS if found["fps"] is None else float(np.ravel(found["fps"])[0]))
    return _clip(config, rate, found["position"], found["quaternion"], found["joints"], names, scene)


def _find(parts: Mapping[str, Any], key: str) -> Any:
    return next((parts[name] for name in _NAMES[key] if name in parts), None)


def _from_csv(path: Path, config: MotionConfig, scene: Scene) -> Clip:
    """x, y, z, qx, qy, qz, qw and the joints in each row; with a line of names, or in the order of the robot's motors."""
    rows = [row for row in csv.reader(path.read_text(encoding="utf-8").splitlines()) if row]
    names = None
    if rows and not _is_number(rows[0][0]):
        names, rows = [name.strip() for name in rows[0][7:]], rows[1:]
    try:
        numbers = np.array(rows, float)
    except ValueError as error:
        raise UserError(f"{_WHERE}={config.file}: rows of as many numbers each are needed: {error}") from error
    if numbers.ndim != 2 or numbers.shape[1] < 8:
        raise UserError(f"{_WHERE}={config.file}: a row is x, y, z, qx, qy, qz, qw and the joints")
    quaternion = numbers[:, [6, 3, 4, 5]]
    return _clip(config, config.fps or CSV_FPS, numbers[:, :3], quaternion, numbers[:, 7:], names, scene)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _clip(
    config: MotionConfig, fps: float, position: Any, quaternion: Any, joints: Any, names: Sequence[str] | None, scene: Scene
) -> Clip:
    """Put joints in the robot's order; those that a file does not name stay in the default pose."""
    joints = np.asarray(joints, float)
    if names is None and joints.shape[1] != len(scene.joints):
        raise UserError(
            f"{_WHERE}={config.file}: has {joints.shape[1]} joints without names, this robot has {len(scene.joints)}"
        )
    names = list(scene.joints) if names is None else names
    known = [name for name in scene.joints if name in names]
    if not known:
        raise UserError(f"{_WHERE}={config.file}: names none of this robot's joints ({', '.join(scene.joints[:3])}, …)")
    ordered = np.tile(scene.default_pose, (len(joints), 1))
    for name in known:
        ordered[:, scene.joints.index(name)] = joints[:, names.index(name)]
    return Clip(fps, np.asarray(position, float), np.asarray(quaternion, float), ordered)

"""A pose to stand in, for a robot whose file has none: legs bent, feet under hips and flat on the ground."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.errors import UserError

_mujoco: Any = mujoco
BENT = 0.85
"""How long a bent leg is, as a share of a straight one."""
FURTHEST = 1.9
"""Radians to either side: further than a leg bends to stand."""
TRIED = 21
"""Angles of each joint."""


class RobotBody:
    """A compiled robot that can be put into a pose."""

    def __init__(self, model: Any, path: Path) -> None:
        self.model, self.data = model, _mujoco.MjData(model)
        free = [joint for joint in range(model.njnt) if model.jnt_type[joint] == _mujoco.mjtJoint.mjJNT_FREE]
        if not free:
            raise UserError(f"{path.name}: no body has a free joint, so this robot can't move about")
        self._free = free[0]
        self.base_id = int(model.jnt_bodyid[self._free])
        self.base = str(model.body(self.base_id).name)
        simple = (int(_mujoco.mjtJoint.mjJNT_HINGE), int(_mujoco.mjtJoint.mjJNT_SLIDE))
        self.joints = [joint for joint in range(model.njnt) if int(model.jnt_type[joint]) in simple]
        self.geoms = [
            geom
            for geom in range(model.ngeom)
            if model.geom_bodyid[geom] != 0 and (model.geom_contype[geom] or model.geom_conaffinity[geom])
        ]

    def name(self, joint: int) -> str:
        """Return a joint's name."""
        return str(self.model.joint(joint).name)

    def stand(self, pose: dict[str, float]) -> None:
        """Take a pose, upright at the origin."""
        model, first = self.model, int(self.model.jnt_qposadr[self._free])
        self.data.qpos[:] = model.qpos0
        self.data.qpos[first : first + 7] = [0, 0, 0, 1, 0, 0, 0]
        for joint in self.joints:
            self.data.qpos[model.jnt_qposadr[joint]] = pose.get(self.name(joint), 0.0)
        _mujoco.mj_kinematics(model, self.data)
        _mujoco.mj_comPos(model, self.data)

    def bottom(self, geom: int) -> float:
        """How low a geom reaches, m."""
        middle, half = self.model.geom_aabb[geom, :3], self.model.geom_aabb[geom, 3:]
        up = self.data.geom_xmat[geom].reshape(3, 3)[2]
        reach = half[0] if self.model.geom_type[geom] == _mujoco.mjtGeom.mjGEOM_SPHERE else np.abs(up) @ half
        return float(self.data.geom_xpos[geom, 2] + up @ middle - reach)

    @property
    def height(self) -> float:
        """Of the base above what it stands on, m."""
        return -min((self.bottom(geom) for geom in self.geoms), default=0.0)


class _Trial(NamedTuple):
    angles: list[float]
    ahead: float
    """Metres of the foot in front of the hip."""
    down: float
    """Metres of the foot below the hip."""


def bent_pose(body: RobotBody) -> dict[str, float]:
    """Return {joint: rad}: every leg of two or three joints that pitch is bent, all else is as near to 0 as it can be."""
    model = body.model
    pose = {body.name(joint): _nearest_to_zero(model, joint) for joint in body.joints}
    body.stand(pose)
    pitching = [joint for joint in body.joints if abs(body.data.xaxis[joint][1]) > 0.9]
    for leg in _limbs(model, pitching):
        feet = _end_of(body, leg)
        reach = min(map(body.bottom, feet), default=0.0)
        if len(leg) in (2, 3) and reach < -0.9 * body.height:  # else an arm, or nothing to stand on
            pose |= dict(zip((body.name(joint) for joint in leg), _bend(body, leg, feet, pose), strict=True))
            body.stand(pose)
    return pose


def _bend(body: RobotBody, leg: Sequence[int], feet: Sequence[int], pose: dict[str, float]) -> list[float]:
    """Try angles of a leg's first two joints, near the middle of what they can do; a third one keeps the foot flat."""
    model, names = body.model, [body.name(joint) for joint in leg]
    turns = [float(np.sign(body.data.xaxis[joint][1])) for joint in leg]
    trials = []
    for upper, lower in itertools.product(*(np.linspace(*_range(model, joint), TRIED) for joint in leg[:2])):
        flat = [] if len(leg) == 2 else [-turns[2] * (turns[0] * upper + turns[1] * lower)]
        angles = [float(angle) for angle in (upper, lower, *flat)]
        body.stand(pose | dict(zip(names, angles, strict=True)))
        foot = body.data.xanchor[leg[2]] if flat else body.data.geom_xpos[min(feet, key=body.bottom)]
        ahead, _, up = foot - body.data.xanchor[leg[0]]
        trials.append(_Trial(angles, float(ahead), -float(up)))
    longest = max(trial.down for trial in trials)
    middles = np.array([np.mean(_range(model, joint)) for joint in leg[:2]])

    def badness(trial: _Trial) -> float:
        off = (abs(trial.ahead) + abs(trial.down - BENT * longest)) / longest
        return off + 0.02 * float(np.abs(np.array(trial.angles[:2]) - middles).sum())

    return min(trials, key=badness).angles


def _end_of(body: RobotBody, leg: Sequence[int]) -> list[int]:
    """The geoms that a leg's last joint moves: those of its own body, or of bodies below that."""
    last = int(body.model.jnt_bodyid[leg[-1]])
    owner = {geom: int(body.model.geom_bodyid[geom]) for geom in body.geoms}
    own = [geom for geom in body.geoms if owner[geom] == last]
    return own or [geom for geom in body.geoms if is_below(body.model, owner[geom], last)]


def _range(model: Any, joint: int) -> tuple[float, float]:
    low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (-FURTHEST, FURTHEST)
    return max(float(low), -FURTHEST), min(float(high), FURTHEST)


def _nearest_to_zero(model: Any, joint: int) -> float:
    low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (0.0, 0.0)
    return float(min(max(0.0, low), high))


def _limbs(model: Any, joints: Sequence[int]) -> list[list[int]]:
    """Group joints into limbs, each from the base outward; a joint of the trunk that moves several limbs is of none."""

    def moves(upper: int, lower: int) -> bool:
        return is_below(model, int(model.jnt_bodyid[lower]), int(model.jnt_bodyid[upper]))

    ends = [joint for joint in joints if not any(moves(joint, other) for other in joints)]
    shared = {joint for joint in joints if sum(moves(joint, end) for end in ends) > 1}
    return [[*(joint for joint in joints if moves(joint, end) and joint not in shared), end] for end in ends]


def is_below(model: Any, body: int, above: int) -> bool:
    """Whether a body hangs on another one, directly or through others."""
    while body > 0:
        body = int(model.body_parentid[body])
        if body == above:
            return True
    return False

"""What a task must know of a robot, guessed from its model file: base, feet, pose, gait and motors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.config.robots import ActuatorConfig
from etude.errors import UserError
from etude.robots.description import RobotDescription
from etude.robots.model_files import poses_of, read_model

_mujoco: Any = mujoco
POSES = ("home", "stand", "standing", "knees_bent", "stand_bent_knees")
"""Names of poses to begin with, the best first."""
ON_GROUND = 0.015
"""Metres above the lowest one up to which a part counts as standing on the ground."""
BENT = 0.85
"""How long a bent leg is, as a share of a straight one."""
DAMPING = 0.03
"""Damping of a motor that nothing is known of, s, times its stiffness."""


@dataclass(frozen=True)
class Guess:
    """A description and where its parts come from, for people."""

    description: RobotDescription
    remarks: tuple[str, ...]


def guess(path: Path, scene: Path | None = None) -> Guess:
    """Describe a robot by what its file says, and by how it is built where that says nothing."""
    spec = read_model(path)
    try:
        model = spec.compile()
    except ValueError as error:
        raise UserError(f"{path.name}: MuJoCo can't compile this robot: {' '.join(str(error).split())}") from error
    body = _Body(model, path)
    pose, pose_from = _pose(body, [file for file in (path, scene) if file is not None])
    body.stand(pose)
    feet = _feet(body)
    actuators, motors_from = _motors(body, pose)
    description = RobotDescription(
        file=path.name,
        folder=path.parent,
        base=body.base,
        feet=tuple(feet),
        gait=_gait(body, feet),
        height=round(body.height, 3),
        pose={re.escape(name): round(value, 4) for name, value in pose.items() if abs(value) > 1e-4},
        actuators=actuators,
    )
    return Guess(description, (f"pose: {pose_from}", f"motors: {motors_from}", "feet: what stands on the ground in that pose"))


class _Body:
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


def _feet(body: _Body) -> list[str]:
    """Return what stands on the ground, front before rear and left before right: a geom, or a body that stands on several."""
    model = body.model
    low = [geom for geom in body.geoms if body.bottom(geom) < -body.height + ON_GROUND]
    by_body: dict[int, list[int]] = {}
    for geom in low:
        by_body.setdefault(int(model.geom_bodyid[geom]), []).append(geom)
    # Of a chain of bodies that reach the ground, the last one is the foot.
    inner = {owner for owner in by_body for other in by_body if _is_below(model, other, owner)}
    found = []
    for owner, geoms in by_body.items():
        if owner in inner:
            continue
        name = str(model.geom(geoms[0]).name) if len(geoms) == 1 else str(model.body(owner).name)
        x, y, _ = np.mean([body.data.geom_xpos[geom] for geom in geoms], 0) - body.data.xpos[body.base_id]
        found.append((x, y, name))
    middle = np.mean([x for x, _, _ in found]) if found else 0.0
    apart = max((abs(x - middle) for x, _, _ in found), default=0.0) > 0.05
    return [name for x, y, name in sorted(found, key=lambda foot: (apart and foot[0] < middle, -foot[1]))]


def _gait(body: _Body, feet: Sequence[str]) -> tuple[float, ...]:
    """Two feet take turns; four trot, diagonal pairs together. Feet come front before rear and left before right."""
    return {2: (0.0, 0.5), 4: (0.0, 0.5, 0.5, 0.0)}.get(len(feet), ())


def _pose(body: _Body, files: Sequence[Path]) -> tuple[dict[str, float], str]:
    poses: dict[str, dict[str, float]] = {}
    for file in files:
        poses = poses_of(file) | poses
    if poses:
        name = next((name for name in POSES if name in poses), next(iter(poses)))
        return {
            joint: value for joint, value in poses[name].items() if joint
        }, f"the file's keyframe {name or 'without a name'}"
    return _bent_pose(body), "legs bent so that feet are under hips, for the file has no keyframe"


def _bent_pose(body: _Body) -> dict[str, float]:
    """Bend every chain of two or three joints that pitch, so that its end is below its beginning, and flat on the ground."""
    model = body.model
    pose = {body.name(joint): _nearest_to_zero(model, joint) for joint in body.joints}
    body.stand(pose)
    pitching = [joint for joint in body.joints if abs(body.data.xaxis[joint][1]) > 0.9]
    for leg in _chains(model, pitching):
        names = [body.name(joint) for joint in leg]
        geoms = [geom for geom in body.geoms if model.geom_bodyid[geom] == model.jnt_bodyid[leg[-1]]] or [
            geom for geom in body.geoms if _is_below(model, int(model.geom_bodyid[geom]), int(model.jnt_bodyid[leg[-1]]))
        ]
        reach = min(map(body.bottom, geoms), default=0.0)
        if len(leg) not in (2, 3) or reach > -0.9 * body.height:
            continue  # an arm, or nothing to stand on
        tried = []
        for angles in itertools.product(*(np.linspace(*_range(model, joint), 21) for joint in leg[:2])):
            signs = [np.sign(body.data.xaxis[joint][1]) for joint in leg]
            flat = [] if len(leg) == 2 else [-signs[2] * (signs[0] * angles[0] + signs[1] * angles[1])]
            body.stand(pose | dict(zip(names, [*angles, *flat], strict=True)))
            foot = min(geoms, key=body.bottom)
            place = body.data.geom_xpos[foot] if len(leg) == 2 else body.data.xanchor[leg[2]]
            ahead, _, down = place - body.data.xanchor[leg[0]]
            tried.append((ahead, -down, [*angles, *flat]))
        longest = max(down for _, down, _ in tried)
        middles = np.array([np.mean(_range(model, joint)) for joint in leg[:2]])
        best = min(tried, key=lambda trial: (abs(trial[0]) + abs(trial[1] - BENT * longest)) / longest
                   + 0.02 * float(np.abs(np.array(trial[2][:2]) - middles).sum()))  # fmt: skip
        pose |= {name: float(angle) for name, angle in zip(names, best[2], strict=True)}
        body.stand(pose)
    return pose


def _range(model: Any, joint: int) -> tuple[float, float]:
    """Angles worth trying: what the joint allows, and no more than a leg needs."""
    low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (-1.6, 1.6)
    return max(float(low), -1.9), min(float(high), 1.9)


def _nearest_to_zero(model: Any, joint: int) -> float:
    if not model.jnt_limited[joint]:
        return 0.0
    low, high = model.jnt_range[joint]
    return float(min(max(0.0, low), high))


def _chains(model: Any, joints: Sequence[int]) -> list[list[int]]:
    """Group joints into limbs, each from the base outward; a joint of the trunk that moves several limbs is of none."""

    def moves(upper: int, lower: int) -> bool:
        return _is_below(model, int(model.jnt_bodyid[lower]), int(model.jnt_bodyid[upper]))

    ends = [joint for joint in joints if not any(moves(joint, other) for other in joints)]
    shared = {joint for joint in joints if sum(moves(joint, end) for end in ends) > 1}
    return [[*(joint for joint in joints if moves(joint, end) and joint not in shared), end] for end in ends]


def _is_below(model: Any, body: int, above: int) -> bool:
    while body > 0:
        body = int(model.body_parentid[body])
        if body == above:
            return True
    return False


def _motors(body: _Body, pose: dict[str, float]) -> tuple[dict[str, ActuatorConfig], str]:
    """Return motors by joints that are alike, and where they come from."""
    model = body.model
    known = {int(model.actuator_trnid[i, 0]): i for i in range(model.nu) if model.actuator_trntype[i] == 0}
    if len(known) < model.nu:
        known = {}  # tendons and the like move several joints: nothing that a motor of one joint could take the place of
    of_file = [joint for joint in body.joints if joint in known]
    moving = of_file or body.joints
    # A stiffness at which the weight of the robot bends a leg by about a radian, if nothing better is known.
    usual = float(np.clip(model.body_mass.sum() * 9.81 * body.height, 1.0, 400.0))
    groups: dict[tuple[float, float, float | None], list[str]] = {}
    positions = 0
    for joint in moving:
        stiffness, damping, limit = usual, DAMPING * usual, _effort_limit(model, joint, known.get(joint))
        actuator = known.get(joint)
        if actuator is not None and model.actuator_biastype[actuator] == 1 and model.actuator_gainprm[actuator, 0] > 0:
            gear = float(model.actuator_gear[actuator, 0])
            stiffness = float(model.actuator_gainprm[actuator, 0]) * gear * gear
            damping = -float(model.actuator_biasprm[actuator, 2]) * gear * gear
            positions += 1
        key = (round(stiffness, 3), round(max(0.0, damping), 4), None if limit is None else round(limit, 3))
        groups.setdefault(key, []).append(body.name(joint))
    motors = {
        f"group_{number}": ActuatorConfig(
            joints="|".join(map(re.escape, names)), stiffness=stiffness, damping=damping, effort_limit=limit
        )
        for number, ((stiffness, damping, limit), names) in enumerate(groups.items(), 1)
    }
    if positions == len(moving) and moving:
        return motors, "the file's own"
    return motors, f"stiffness {usual:.0f} from the robot's weight and height, for the file's hold no position"


def _effort_limit(model: Any, joint: int, actuator: int | None) -> float | None:
    """The largest torque: the joint's, the actuator's, or that of its largest control; None where nothing says."""
    if model.jnt_actfrclimited[joint]:
        return float(np.abs(model.jnt_actfrcrange[joint]).max())
    if actuator is None:
        return None
    gear = abs(float(model.actuator_gear[actuator, 0])) or 1.0
    if model.actuator_forcelimited[actuator]:
        return float(np.abs(model.actuator_forcerange[actuator]).max()) * gear
    is_motor = model.actuator_biastype[actuator] == 0
    if is_motor and model.actuator_ctrllimited[actuator]:
        return float(np.abs(model.actuator_ctrlrange[actuator]).max() * model.actuator_gainprm[actuator, 0]) * gear
    return None

"""What a task must know of a robot, guessed from its model file: base, feet, pose, gait and motors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.config.robots import ActuatorConfig
from etude.errors import UserError
from etude.robots.models.bent_pose import RobotBody, bent_pose, is_below
from etude.robots.models.description import RobotDescription
from etude.robots.models.model_files import poses_of, read_model

_mujoco: Any = mujoco
POSES = ("home", "stand", "standing", "knees_bent", "stand_bent_knees")
"""Names of poses to begin with, the best first."""
ON_GROUND = 0.015
"""Metres above the lowest one up to which a part counts as standing on the ground."""
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
    body = RobotBody(model, path)
    pose, pose_from = _pose(body, [file for file in (path, scene) if file is not None])
    body.stand(pose)
    feet = _feet(body)
    actuators, motors_from, passive = _motors(body)
    description = RobotDescription(
        file=path.name,
        folder=path.parent,
        base=body.base,
        feet=tuple(feet),
        gait=_gait(feet),
        height=round(body.height, 3),
        pose={re.escape(name): round(value, 4) for name, value in pose.items() if abs(value) > 1e-4 and name not in passive},
        actuators=actuators,
        passive=tuple(map(re.escape, passive)),
    )
    return Guess(description, (f"pose: {pose_from}", f"motors: {motors_from}", "feet: what stands on the ground in that pose"))


def _feet(body: RobotBody) -> list[str]:
    """Return what stands on the ground, front before rear and left before right: a geom, or a body that stands on several."""
    model = body.model
    low = [geom for geom in body.geoms if body.bottom(geom) < -body.height + ON_GROUND]
    by_body: dict[int, list[int]] = {}
    for geom in low:
        by_body.setdefault(int(model.geom_bodyid[geom]), []).append(geom)
    # Of a chain of bodies that reach the ground, the last one is the foot.
    inner = {owner for owner in by_body for other in by_body if is_below(model, other, owner)}
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


def _gait(feet: Sequence[str]) -> tuple[float, ...]:
    """Two feet take turns; four trot, diagonal pairs together. Feet come front before rear and left before right."""
    return {2: (0.0, 0.5), 4: (0.0, 0.5, 0.5, 0.0)}.get(len(feet), ())


def _pose(body: RobotBody, files: Sequence[Path]) -> tuple[dict[str, float], str]:
    poses: dict[str, dict[str, float]] = {}
    for file in files:
        poses = poses_of(file) | poses
    if poses:
        name = next((name for name in POSES if name in poses), next(iter(poses)))
        return poses[name], f"the file's keyframe {name or 'without a name'}"
    return bent_pose(body), "legs bent so that feet are under hips, for the file has no keyframe"


def _motors(body: RobotBody) -> tuple[dict[str, ActuatorConfig], str, list[str]]:
    """Return motors, one group for joints of one kind, where they come from, and the joints that have none."""
    model = body.model
    known = {int(model.actuator_trnid[i, 0]): i for i in range(model.nu) if model.actuator_trntype[i] == 0}
    if len(known) < model.nu:
        known = {}  # tendons and the like move several joints: nothing that a motor of one joint could take the place of
    of_file = [joint for joint in body.joints if joint in known]
    moving = of_file or body.joints
    passive = [body.name(joint) for joint in body.joints if joint not in moving]
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
        return motors, "the file's own", passive
    return motors, f"stiffness {usual:.0f} from the robot's weight and height, for the file's hold no position", passive


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

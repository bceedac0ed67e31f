"""What a robot's description must be for its model: feet that can stand, motors that move joints, a pose that can be held."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from etude.errors import UserError
from etude.robots.models.description import RobotDescription, matches

_MOST_NAMES = 4
_SLACK = 1e-3
"""Radians by which a pose may be beyond its range: files round."""


def check_feet(spec: Any, description: RobotDescription, floor: str) -> None:
    """Refuse feet that are not there, are named twice, or touch nothing, and a gait of other feet."""
    file, feet, gait = description.file, description.feet, description.gait
    geoms, bodies = {geom.name: geom for geom in spec.geoms}, {body.name: body for body in spec.bodies}
    for foot in feet:
        if foot not in geoms and foot not in bodies:
            known = sorted(name for name in {*geoms, *bodies} if name and name != floor)
            raise UserError(f"{file}: feet: there is no geom or body '{foot}' (there are {', '.join(known)})")
        own = [geoms[foot]] if foot in geoms else bodies[foot].geoms
        if not any(geom.contype or geom.conaffinity for geom in own):
            raise UserError(f"{file}: feet: '{foot}' touches nothing: its contype and conaffinity are 0")
        inside = geoms[foot].parent.name if foot in geoms else None
        if feet.count(foot) > 1 or (inside != foot and inside in feet):
            raise UserError(f"{file}: feet: '{foot}' is named twice" + ("" if feet.count(foot) > 1 else f", as '{inside}' too"))
    if gait and len(gait) != len(feet):
        raise UserError(f"{file}: gait={list(gait)}: must have a phase for each of {len(feet)} feet")


def check_motors(description: RobotDescription, joints: Sequence[str], motors: Collection[str]) -> None:
    """Refuse joints that nothing moves, unless the description says that nothing shall."""
    where = f"{description.file}: passive"
    passive = {name for pattern in description.passive for name in matches(pattern, joints, where)}
    driven = next((joint for joint in joints if joint in passive and joint in motors), None)
    if driven is not None:
        raise UserError(f"{where}: '{driven}' has a motor")
    loose = [joint for joint in joints if joint not in motors and joint not in passive]
    if loose:
        raise UserError(
            f"{description.file}: actuators: no motor moves {_listed(loose)}: add them to a group, or name them in `passive`"
        )


def check_pose(
    description: RobotDescription, given: Mapping[str, float], motors: Collection[str], pose: np.ndarray, limits: np.ndarray
) -> None:
    """Refuse a pose that joints can't take, or that nothing holds: `pose` (J,), `limits` (J, 2), of joints with motors."""
    where = f"{description.file}: pose"
    unheld = [joint for joint in given if joint not in motors]
    if unheld:
        raise UserError(f"{where}: no motor holds {_listed(unheld)}; a joint without one begins as the model has it")
    for joint, angle, (low, high) in zip(motors, pose, limits, strict=True):
        if not low - _SLACK <= angle <= high + _SLACK:
            said = "" if joint in given else ", and is not in the pose"
            raise UserError(f"{where}: {joint}={angle:g}: is beyond the joint's range, {low:g} to {high:g}{said}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

"""How each observation term looks to a robot's mirror image: the world is reflected, y becomes −y.

Places and velocities then turn their y around, rotations (axial vectors) their x and z, and left parts become right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etude.errors import UserError

Places = tuple[list[int], list[float]]
"""Where each number of the mirror image is taken from, and its sign."""
POLAR = (1.0, -1.0, 1.0)
AXIAL = (-1.0, 1.0, -1.0)


@dataclass(frozen=True)
class BodySymmetry:
    """A robot's own: what its mirror image has in the place of each part."""

    joints: Sequence[int]
    joint_signs: Sequence[float]
    feet: Sequence[int]
    bodies: Sequence[int]
    """Of those with a mass, the base left out."""
    gait_shift: float
    """By how many strides the gait's clock of the mirror image is ahead: 0 or a half."""
    goal: str = "velocity"
    """What a command is."""


Rule = Callable[[BodySymmetry, int, Mapping[str, Any]], Places]


def signs(*values: float) -> Rule:
    """Return the rule of numbers that stay where they are."""

    def rule(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
        return list(range(len(values))), list(values)

    return rule


def _same(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return list(range(size)), [1.0] * size


def _joints(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return list(body.joints), list(body.joint_signs)


def _sizes_of_joints(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return list(body.joints), [1.0] * size


def _feet(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return list(body.feet), [1.0] * size


def _vectors_of_feet(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return [3 * foot + axis for foot in body.feet for axis in range(3)], list(POLAR) * len(body.feet)


def _clock(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    """Half a stride ahead, sine and cosine are the opposite."""
    return [0, 1], [1.0 if body.gait_shift == 0 else -1.0] * 2


def _scan(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    """The grid goes along x first; every row across it is read from its other end."""
    across = round(options.get("width", 1.0) / options.get("step", 0.1)) + 1
    return [row * across + across - 1 - place for row in range(size // across) for place in range(across)], [1.0] * size


def _command(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    """Ahead, to the left, and to turn left: but how high to jump is the same in a mirror."""
    return [0, 1, 2], [1.0, -1.0, 1.0 if body.goal == "jump" else -1.0]


def _bodies(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return list(body.bodies), [1.0] * size


RANDOMIZED: dict[str, Rule] = {
    "floor_friction": _same, "feet_friction": _same, "restitution": _same, "base_mass": _same, "push": _same,
    "base_com": signs(*POLAR), "link_mass": _bodies, "motor_offset": _joints,
    **dict.fromkeys(("stiffness", "damping", "torque", "joint_friction", "joint_damping", "armature"), _sizes_of_joints),
}  # fmt: skip


def _randomized(body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    return RANDOMIZED[options.get("name", "floor_friction")](body, size, options)


MIRRORS: dict[str, Rule] = {
    "base_height": _same,
    "base_linear_velocity": signs(*POLAR),
    "base_angular_velocity": signs(*AXIAL),
    "gravity": signs(*POLAR),
    "base_euler": signs(*AXIAL),
    "command": _command,
    "jump_clock": _same,
    "gait_phase": _clock,
    "height_scan": _scan,
    "last_push": signs(*POLAR, *AXIAL),
    "randomized": _randomized,
    "feet_force": _vectors_of_feet,
    "feet_force_log": _vectors_of_feet,
    "joint_position_measured": _joints,
    "feet_position": _vectors_of_feet,
    **dict.fromkeys(
        ("joint_position", "joint_position_absolute", "joint_velocity", "joint_torque", "action", "dof_pos_ref_diff"), _joints
    ),
    **dict.fromkeys(
        ("stance_clock", "swing_clock", "feet_contact", "feet_should_stand", "feet_height", "feet_air_time"), _feet
    ),
}
"""The rule of each observation term."""


def places_of(term: str, body: BodySymmetry, size: int, options: Mapping[str, Any]) -> Places:
    """Return the places and signs of a term's `size` numbers."""
    if term not in MIRRORS:
        raise UserError(f"environment.robot.observations: nobody has said how {term} looks in a mirror")
    return MIRRORS[term](body, size, options)

"""Left and right of a robot: which joints, feet and bodies are each other's mirror image, found from names and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np
import torch

from etude.environments.mirror import Mirror, Swap
from etude.errors import UserError
from etude.robots.observing import LOOK_KEYS, ObservationGroup
from etude.robots.scene import Scene
from etude.robots.terms.mirrors import AXIAL, POLAR, BodySymmetry, places_of
from etude.robots.terms.table import options_of

_mujoco: Any = mujoco
_WORDS = (("left", "right"), ("l", "r"), ("fl", "fr"), ("rl", "rr"), ("hl", "hr"), ("bl", "br"), ("ml", "mr"),
          ("lf", "rf"), ("lh", "rh"), ("lr", "rr"), ("lm", "rm"), ("ll", "lr"))  # fmt: skip
PAIRS = tuple(
    pair for left, right in _WORDS for pair in ((left, right), (left.upper(), right.upper()), (left.title(), right.title()))
)
"""Words of names that stand for left and right, unless a robot's YAML says otherwise."""
_NEAR = 0.03
"""Metres, and radians, by which two sides of a robot that was measured may differ; and shares by which motors may."""


def mirror_of(
    scene: Scene,
    observations: Mapping[str, Any],
    groups: Mapping[str, ObservationGroup],
    device: torch.device,
    goal: str = "velocity",
) -> Mirror:
    """Return how a task's observations and actions look in a mirror; a robot that is lopsided is an error that says where."""
    body = replace(body_symmetry(scene), goal=goal)
    action = _of_actions(scene, body, device)
    seen = {name: _group(group, observations[name], body, device) for name, group in groups.items()}
    return Mirror(seen if len(seen) > 1 else {"": next(iter(seen.values()))}, action)


def _of_actions(scene: Scene, body: BodySymmetry, device: torch.device) -> Swap:
    """Of the joints that actions move, which must have partners that they move too."""
    acted = scene.acted.tolist()
    for joint in acted:
        if body.joints[joint] not in acted:
            here, there = scene.joints[joint], scene.joints[body.joints[joint]]
            raise _lopsided(f"actions move {here} and not {there} (environment.robot.action.joints)")
    return Swap([acted.index(body.joints[joint]) for joint in acted], [body.joint_signs[joint] for joint in acted], device)


def _group(group: ObservationGroup, settings: Mapping[str, Any], body: BodySymmetry, device: torch.device) -> Swap:
    index: list[int] = []
    sign: list[float] = []
    for term, look, size in group.terms:
        given = options_of(settings[term], term)
        options = {key: value for key, value in given.items() if key not in LOOK_KEYS}
        places, turned = places_of(term, body, size, options)
        for _ in range(look.history):
            first = len(index)
            index += [first + place for place in places]
            sign += turned
    return Swap(index, sign, device)


def body_symmetry(scene: Scene) -> BodySymmetry:
    """Return what stands in the place of what, by the words for left and right in names; signs are those of the geometry."""
    model, words = scene.model, scene.description.mirror or PAIRS
    joints = _partners(scene.joints, words)
    feet = _partners(scene.feet, words)
    links = [i for i in range(1, model.nbody) if i != scene.trunk_body and model.body_mass[i] > 0]
    bodies = _partners([model.body(i).name for i in links], words)
    joint_signs = _signs(scene, joints)
    _check_equal(scene, joints, joint_signs)
    return BodySymmetry(joints, joint_signs, feet, bodies, _gait_shift(scene, feet))


def mirrored_name(name: str, names: Iterable[str], words: Sequence[tuple[str, str]] = PAIRS) -> str:
    """Return the name with left and right exchanged, if there is such a one; else the name itself."""
    known = set(names)
    parts = re.split(r"([^A-Za-z]+)", name)
    for one, other in [*words, *((right, left) for left, right in words)]:
        swapped = "".join(other if part == one else part for part in parts)
        if swapped != name and swapped in known:
            return swapped
    for one, other in (("left", "right"), ("Left", "Right"), ("right", "left"), ("Right", "Left")):
        swapped = name.replace(one, other)
        if swapped != name and swapped in known:
            return swapped
    return name


def _partners(names: Sequence[str], words: Sequence[tuple[str, str]]) -> list[int]:
    places = {name: i for i, name in enumerate(names)}
    partners = [places[mirrored_name(name, names, words)] for name in names]
    for i, other in enumerate(partners):
        if partners[other] != i:
            raise _lopsided(f"{names[i]} would be mirrored by {names[other]}, which is that of another part")
    return partners


def _signs(scene: Scene, partners: Sequence[int]) -> list[float]:
    """A joint's partner turns the same way round in a mirror, or the other way; axes and places are those of the model at 0."""
    model = scene.model
    data = _mujoco.MjData(model)
    data.qpos[:] = model.qpos0
    data.qpos[scene.base_qpos : scene.base_qpos + 7] = [0, 0, 0, 1, 0, 0, 0]
    _mujoco.mj_kinematics(model, data)
    signs = []
    for i, other in enumerate(partners):
        one, two = (model.joint(scene.joints[place]).id for place in (i, other))
        slides = model.jnt_type[one] == _mujoco.mjtJoint.mjJNT_SLIDE
        along = float(np.dot(data.xaxis[two], np.array(POLAR if slides else AXIAL) * data.xaxis[one]))
        apart = float(np.linalg.norm(data.xanchor[two] - np.array(POLAR) * data.xanchor[one]))
        if abs(along) < 1 - _NEAR or apart > _NEAR:
            here, there = scene.joints[i], scene.joints[other]
            if i == other:
                raise _lopsided(f"no joint is named as the partner of {here}, which is not in the middle")
            raise _lopsided(f"{'axes' if apart <= _NEAR else 'places'} of {here} and {there} are not those of a mirror image")
        signs.append(1.0 if along > 0 else -1.0)
    return signs


def _check_equal(scene: Scene, partners: Sequence[int], signs: Sequence[float]) -> None:
    pose = scene.default_pose
    kinds = {
        "the default pose": (pose * np.array(signs), pose),
        "the stride": (scene.stride * np.array(signs), scene.stride),
        "the motors' stiffness": (scene.stiffness, scene.stiffness),
        "the motors' damping": (scene.damping, scene.damping),
        "what the motors can do": (scene.effort_limit, scene.effort_limit),
        "which motors are networks": (scene.of_network, scene.of_network),
        "the motors' action_scale": (scene.action_scale, scene.action_scale),
    }
    for what, (here, there) in kinds.items():
        for i, other in enumerate(partners):
            if not np.isclose(here[i], there[other], rtol=_NEAR, atol=_NEAR):
                raise _lopsided(f"{what} differs between {scene.joints[i]} and {scene.joints[other]}")


def _gait_shift(scene: Scene, feet: Sequence[int]) -> float:
    """The clock of the mirror image shows each foot what its partner's showed: all must be ahead by the same."""
    gait = scene.description.gait
    if not gait:
        return 0.0
    shifts = {round((gait[foot] - gait[other]) % 1.0, 3) % 1.0 for foot, other in enumerate(feet)}
    if len(shifts) > 1:
        raise _lopsided(f"gait={list(gait)}: would be another one in a mirror")
    return shifts.pop()


def _lopsided(said: str) -> UserError:
    hint = "`mirror` in its YAML says which words of names mean left and right"
    return UserError(f"algorithm.symmetry: this robot is not its own mirror image: {said} ({hint})")

"""Every shape of a MuJoCo model as points and triangles, in its own frame: what a page can draw without MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.inspecting.appearance import colours_of, shown
from etude.inspecting.surfaces import MOST_POINTS, Surface

_mujoco: Any = mujoco
_GEOM = _mujoco.mjtGeom
AROUND = 20
"""Corners of a circle."""


@dataclass(frozen=True)
class Shape:
    """A geom of a robot."""

    name: str
    body: int
    place: np.ndarray
    """In its body's frame. (3,)"""
    turn: np.ndarray
    """In its body's frame: w, x, y, z. (4,)"""
    points: np.ndarray
    """(n, 3)"""
    faces: np.ndarray
    """(m, 3)"""
    colour: np.ndarray
    """Red, green, blue and how opaque, 0 to 1. (4,)"""


def shapes_of(model: Any, ground: str) -> list[Shape]:
    """Return all that is drawn of a model but its ground; of one that keeps everything in hidden groups, everything."""
    colours = colours_of(model, "geom")
    numbers = [geom for geom in shown(model.geom_group, colours) if model.geom(geom).name != ground]
    if not numbers:
        numbers = [geom for geom in range(model.ngeom) if model.geom(geom).name != ground]
    found, points = [], 0
    for geom in numbers:
        surface = _surface(model, int(geom), MOST_POINTS - points)
        if surface is None:
            continue
        points += len(surface[0])
        body, place, turn = int(model.geom_bodyid[geom]), model.geom_pos[geom], model.geom_quat[geom]
        found.append(Shape(model.geom(geom).name, body, place.copy(), turn.copy(), *surface, colours[geom].copy()))
    return found


def _surface(model: Any, geom: int, room: int) -> Surface | None:
    kind, size = int(model.geom_type[geom]), model.geom_size[geom]
    if kind == _GEOM.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        count, first, first_face = (int(each[mesh]) for each in (model.mesh_vertnum, model.mesh_vertadr, model.mesh_faceadr))
        if count > room:  # too fine beside the others: its bounding box
            return _box(model.geom_aabb[geom, 3:], model.geom_aabb[geom, :3])
        faces = model.mesh_face[first_face : first_face + int(model.mesh_facenum[mesh])]
        return model.mesh_vert[first : first + count].copy(), faces.copy()
    if kind == _GEOM.mjGEOM_BOX:
        return _box(size, np.zeros(3))
    if kind == _GEOM.mjGEOM_SPHERE:
        return ball_surface(np.full(3, size[0]))
    if kind == _GEOM.mjGEOM_ELLIPSOID:
        return ball_surface(size)
    if kind == _GEOM.mjGEOM_CAPSULE:
        return _capsule(size[0], size[1])
    if kind == _GEOM.mjGEOM_CYLINDER:
        return _turned(np.array([[0, -size[1]], [size[0], -size[1]], [size[0], size[1]], [0, size[1]]]))
    return None  # a plane or a field that a robot's own file brings


def ball_surface(radii: np.ndarray) -> Surface:
    """Return a sphere, or an ellipsoid."""
    points, faces = _capsule(1.0, 0.0)
    return points * radii, faces


def _capsule(radius: float, half: float) -> Surface:
    angles = np.linspace(-np.pi / 2, np.pi / 2, AROUND // 2 + 1)
    profile = np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1)
    lower, upper = profile[: len(profile) // 2 + 1], profile[len(profile) // 2 :]
    away = np.array([0.0, half])
    return _turned(np.concatenate([lower - away, upper + away]))


def _turned(profile: np.ndarray) -> Surface:
    """Turn a line (k, 2) of radii and heights, from below to above, about the vertical axis."""
    angles = np.linspace(0, 2 * np.pi, AROUND, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    points = np.concatenate([np.column_stack([radius * circle, np.full(AROUND, height)]) for radius, height in profile])
    here = np.arange(AROUND)
    beside = (here + 1) % AROUND
    faces = []
    for ring in range(len(profile) - 1):
        low, high = ring * AROUND, (ring + 1) * AROUND
        faces += [
            np.stack([low + here, low + beside, high + beside], 1),
            np.stack([low + here, high + beside, high + here], 1),
        ]
    return points, np.concatenate(faces)


def _box(half: np.ndarray, middle: np.ndarray) -> Surface:
    """Four points of its own for each side, so that edges are sharp."""
    points, faces = [], []
    for axis in range(3):
        one, other = (axis + 1) % 3, (axis + 2) % 3
        for side in (-1.0, 1.0):
            corners = np.zeros((4, 3))
            corners[:, axis] = side
            corners[:, one], corners[:, other] = [-1, 1, 1, -1], [-1, -1, 1, 1]
            first = len(points) * 4
            order = [[0, 1, 2], [0, 2, 3]] if side > 0 else [[0, 2, 1], [0, 3, 2]]
            points.append(corners * half + middle)
            faces.append(np.array(order) + first)
    return np.concatenate(points), np.concatenate(faces)

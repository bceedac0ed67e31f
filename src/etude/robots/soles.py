"""The soles of feet: a few points of each foot, one of which is its lowest however the foot is turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

_mujoco: Any = mujoco
_RIM = 16
"""Points around each end of a cylinder."""
_DIRECTIONS = 64
"""In which a mesh is looked at; the vertex that is farthest in one of them may be the lowest."""


@dataclass(frozen=True)
class Soles:
    """Of F feet, P points each; a foot with fewer has one of them again."""

    points: np.ndarray
    """In the frame of the foot's sensors. (F, P, 3)"""
    radius: np.ndarray
    """How far below each point the foot reaches. (F, P)"""

    @property
    def turns(self) -> bool:
        """Whether it matters how a foot is turned: not for spheres about the middle of their frame."""
        return bool(np.abs(self.points).max(initial=0.0) > 0)


def soles_of(model: Any, feet: Sequence[str]) -> Soles:
    """Return the soles of feet, which are geoms, or bodies with geoms that touch things."""
    geoms = {model.geom(i).name for i in range(model.ngeom)}
    found = [_of_geom(model, model.geom(foot).id) if foot in geoms else _of_body(model, model.body(foot).id) for foot in feet]
    most = max((len(rows) for rows in found), default=1)
    padded = np.array([np.concatenate([rows, np.repeat(rows[:1], most - len(rows), 0)]) for rows in found]).reshape(-1, most, 4)
    return Soles(padded[..., :3], padded[..., 3])


def _of_body(model: Any, body: int) -> np.ndarray:
    """A body's sensors are about its centre of mass, along its axes of inertia."""
    origin, frame = model.body_ipos[body], _matrix(model.body_iquat[body])
    rows = [np.zeros((0, 4))]
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == body and (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            own = _of_geom(model, geom)
            in_body = own[:, :3] @ _matrix(model.geom_quat[geom]).T + model.geom_pos[geom]
            rows.append(np.concatenate([(in_body - origin) @ frame, own[:, 3:]], 1))
    every = np.concatenate(rows)
    return every if len(every) else np.zeros((1, 4))


def _of_geom(model: Any, geom: int) -> np.ndarray:
    """Points and radii (P, 4) in the geom's frame."""
    kinds, size, kind = _mujoco.mjtGeom, model.geom_size[geom], model.geom_type[geom]
    if kind == kinds.mjGEOM_SPHERE:
        return np.array([[0.0, 0.0, 0.0, size[0]]])
    if kind == kinds.mjGEOM_CAPSULE:
        return np.array([[0.0, 0.0, end * size[1], size[0]] for end in (-1, 1)])
    if kind == kinds.mjGEOM_CYLINDER:
        around = np.arange(_RIM) * 2 * np.pi / _RIM
        rim = [(size[0] * np.cos(angle), size[0] * np.sin(angle)) for angle in around]
        return np.array([[x, y, end * size[1], 0.0] for end in (-1, 1) for x, y in rim])
    if kind == kinds.mjGEOM_ELLIPSOID:
        ways = _directions()
        return _bare((ways * size**2) / np.linalg.norm(ways * size, axis=1, keepdims=True))
    if kind == kinds.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
        vertices = model.mesh_vert[first : first + count]
        return _bare(vertices[np.unique((vertices @ _directions().T).argmax(0))])
    middle, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return _bare(middle + half * np.array(list(product((-1, 1), repeat=3))))


def _bare(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, np.zeros((len(points), 1))], 1)


def _directions() -> np.ndarray:
    """Spread evenly over a sphere, on a spiral. (K, 3)"""
    z = 1 - 2 * (np.arange(_DIRECTIONS) + 0.5) / _DIRECTIONS
    angle = np.pi * (1 + 5**0.5) * np.arange(_DIRECTIONS)
    flat = np.sqrt(1 - z**2)
    return np.stack([flat * np.cos(angle), flat * np.sin(angle), z], 1)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    _mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)

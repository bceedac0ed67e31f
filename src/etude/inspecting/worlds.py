"""Simulated worlds in three dimensions: what MuJoCo would draw of an environment, as numbers that a page draws by itself.

    describe     shapes, once: kind, size, colour, surface
    take         where each of them is, after each step: position and quaternion, (shapes, 7) float32

Nothing here needs OpenGL, and nothing changes a simulation.
"""

from __future__ import annotations

import importlib
import importlib.util
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np

from etude.environments.gymnasium import GymnasiumVector
from etude.environments.vector import VectorEnvironment
from etude.inspecting.appearance import colours_of, shown
from etude.inspecting.surfaces import field_of, mesh_of

MOST_SHAPES = 2000
KINDS = ("plane", "field", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
"""By MuJoCo's number of a geom's type."""
FREE = 2.8
"""From how far a thing is looked at, in its own radii."""

Simulated = tuple[Any, Callable[[], Any], bool]
"""A model, what gives its data, and whether that data is a copy."""


class World:
    """The shapes of one environment's simulation, and where they are."""

    def __init__(self, environment: VectorEnvironment, model: Any, data: Callable[[], Any], *, is_copy: bool) -> None:
        self._mujoco: Any = importlib.import_module("mujoco")
        self._model, self._data, self._is_copy = model, data, is_copy
        self._end: np.ndarray | None = None
        self._colours = {what: colours_of(model, what) for what in ("geom", "site")}
        self._geoms = shown(model.geom_group, self._colours["geom"])
        self._sites = shown(model.site_group, self._colours["site"])
        self._look_at_ends(environment)
        self._described: dict[str, Any] | None = None

    @classmethod
    def of(cls, environment: VectorEnvironment) -> World | None:
        """Return the world of an environment; None where MuJoCo does not simulate it, or it is beyond measure."""
        found = _simulated(environment)
        if found is None:
            return None
        model, data, is_copy = found
        world = cls(environment, model, data, is_copy=is_copy)
        return world if 0 < len(world._geoms) + len(world._sites) <= MOST_SHAPES else None

    @property
    def size(self) -> int:
        """How many shapes there are."""
        return len(self._geoms) + len(self._sites)

    def take(self) -> np.ndarray:
        """Return where every shape is, (shapes, 7): x, y, z, and a quaternion w, x, y, z."""
        self._end = None
        data = self._now()
        places = np.concatenate([data.geom_xpos[self._geoms], data.site_xpos[self._sites]])
        turns = np.concatenate([data.geom_xmat[self._geoms], data.site_xmat[self._sites]]).reshape(-1, 9)
        return np.concatenate([places, _quaternions(turns)], 1).astype(np.float32)

    def take_after_step(self, *, ended: bool) -> np.ndarray | None:
        """Return where a step led. An environment that has begun anew already, and showed no end, gives None."""
        end, self._end = self._end, None
        return end if ended or end is not None else self.take()

    def describe(self) -> dict[str, Any]:
        """Return the shapes in plain values, arrays as base64; made once, of a simulation that has begun."""
        if self._described is None:
            self._described = self._describe()
        return self._described

    def _describe(self) -> dict[str, Any]:
        model = self._model
        surfaces: list[dict[str, Any]] = []
        numbers: dict[tuple[str, int], int] = {}
        shapes = [self._geom(int(geom), surfaces, numbers) for geom in self._geoms]
        for site in self._sites:
            kind, size = KINDS[int(model.site_type[site])], model.site_size[site].tolist()
            shapes.append({"kind": kind, "size": size, "colour": self._colours["site"][site].tolist()})
        return {"shapes": shapes, "surfaces": surfaces, **self._where_to_look()}

    def _geom(self, geom: int, surfaces: list[dict[str, Any]], numbers: dict[tuple[str, int], int]) -> dict[str, Any]:
        model = self._model
        number = int(model.geom_type[geom])
        kind = KINDS[number] if number < len(KINDS) else "mesh"
        shape = {"kind": kind, "size": model.geom_size[geom].tolist(), "colour": self._colours["geom"][geom].tolist()}
        if kind not in ("mesh", "field"):
            return shape
        key = (kind, int(model.geom_dataid[geom]))
        if key not in numbers:
            arrays = mesh_of(model, key[1], surfaces) if kind == "mesh" else field_of(model, key[1])
            if arrays is None:  # too fine, or of a kind without a surface: its bounding box
                middle, half = model.geom_aabb[geom, :3].tolist(), model.geom_aabb[geom, 3:].tolist()
                return {**shape, "kind": "box", "size": half, "at": middle}
            points, faces = arrays
            numbers[key] = len(surfaces)
            surfaces.append({"points": _text(points, np.float32), "faces": _text(faces, np.uint32), "count": len(points)})
        return {**shape, "kind": "surface", "surface": numbers[key]}

    def _where_to_look(self) -> dict[str, Any]:
        """Return what to look at: a shape that moves about, or the middle of all that can move."""
        model, data = self._model, self._now()
        bodies = model.geom_bodyid[self._geoms]
        moving = np.flatnonzero(model.body_weldid[bodies] != 0)
        if not len(moving):
            return {"follow": None, "middle": model.stat.center.tolist(), "distance": FREE * float(model.stat.extent)}
        root = _roaming_root(self._mujoco, model)
        own = moving if root is None else np.flatnonzero(model.body_rootid[bodies] == root)
        own = own if len(own) else moving
        places, reach = data.geom_xpos[self._geoms[own]], model.geom_rbound[self._geoms[own]]
        follow = None if root is None else int(own[0])
        middle = (places.min(0) + places.max(0)) / 2 if follow is None else data.geom_xpos[self._geoms[follow]]
        radius = float((np.linalg.norm(places - middle, axis=1) + reach).max())
        return {"follow": follow, "middle": middle.tolist(), "distance": FREE * radius}

    def _now(self) -> Any:
        data = self._data()
        if self._is_copy:  # after a state was loaded, what derives from it is not there yet
            self._mujoco.mj_kinematics(self._model, data)
        return data

    def _look_at_ends(self, environment: VectorEnvironment) -> None:
        """Environments begin anew in the step that ends an episode: look before they do, where they let us."""
        base: Any = environment.base
        if isinstance(base, GymnasiumVector):
            before = base.on_end

            def see(index: int) -> None:
                if before is not None:
                    before(index)
                if index == 0:
                    self._note()

            base.on_end = see
        elif hasattr(base, "listener"):
            base.listener = self._note

    def _note(self, _: Any = None) -> None:
        self._end = self.take()


def _simulated(environment: VectorEnvironment) -> Simulated | None:
    if importlib.util.find_spec("mujoco") is None:
        return None
    base: Any = environment.base
    if isinstance(base, GymnasiumVector):
        task: Any = base.copies[0].unwrapped
        suite = getattr(task, "suite_task", None)
        if suite is not None:
            return _of_suite(suite)
        model, data = getattr(task, "model", None), getattr(task, "data", None)
        is_one = type(model).__module__.startswith("mujoco") and type(data).__module__.startswith("mujoco")
        return (model, lambda: task.data, False) if is_one else None
    if getattr(base, "suite_tasks", None):
        return _of_suite(base.suite_tasks[0])
    simulation = getattr(base, "simulation", None)
    model = getattr(simulation, "model", None) or getattr(getattr(base, "scene", None), "model", None)
    return None if model is None or simulation is None else (model, lambda: simulation.data(0), True)


def _of_suite(task: Any) -> Simulated:
    return task.physics.model.ptr, lambda: task.physics.data.ptr, False


def _roaming_root(mujoco: Any, model: Any) -> int | None:
    """Return the body that moves about without bounds: it is freely jointed to the world, or slides and has no limit."""
    for joint in range(model.njnt):
        body, kind = int(model.jnt_bodyid[joint]), int(model.jnt_type[joint])
        slides = kind == mujoco.mjtJoint.mjJNT_SLIDE and not model.jnt_limited[joint]
        if model.body_parentid[body] == 0 and (slides or kind == mujoco.mjtJoint.mjJNT_FREE):
            return int(model.body_rootid[body])
    return None


def _quaternions(matrices: np.ndarray) -> np.ndarray:
    """Return rotations (n, 9) as quaternions (n, 4), w first: of the four ways to divide, each takes the one that is exact."""
    m = matrices.reshape(-1, 3, 3)
    x, y, z = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
    squares = np.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], 1)
    a, b, c = m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]
    p, q, r = m[:, 1, 0] + m[:, 0, 1], m[:, 0, 2] + m[:, 2, 0], m[:, 2, 1] + m[:, 1, 2]
    rows = np.array([[squares[:, 0], a, b, c], [a, squares[:, 1], p, q], [b, p, squares[:, 2], r], [c, q, r, squares[:, 3]]])
    best = squares.argmax(1)
    chosen = rows[best, :, np.arange(len(m))]
    return chosen / np.linalg.norm(chosen, axis=1, keepdims=True)


def _text(array: np.ndarray, kind: type) -> str:
    return b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()

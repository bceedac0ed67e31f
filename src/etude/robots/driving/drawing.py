"""Pictures of a robot, drawn without a display."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np
import torch

from etude.config.constraints import Bounds, PositiveFloat, at_least
from etude.config.validate import Validator
from etude.errors import UserError
from etude.robots.rotations import yaw_of

_mujoco: Any = mujoco
Pixels = Annotated[int, Bounds(low=16, high=8192)]
_BACKENDS = {"darwin": "cgl", "win32": "glfw"}


@dataclass(frozen=True)
class View:
    """How a robot is looked at."""

    camera: Literal["follow", "behind", "fixed"] = "follow"
    """follow: goes along with the robot; behind: turns with it too; fixed: stays where the robot was at first."""
    distance: PositiveFloat | None = None
    """Metres to the robot. Default: 1.6, or as many as it takes to see a tall one from head to foot."""
    azimuth: float = 120.0
    """Degrees about the vertical axis: 0 looks along x, 90 along y; seen from behind, 0 looks ahead."""
    elevation: Annotated[float, Bounds(low=-90, high=90)] = -15.0
    """Degrees of the line of sight above the horizon; below 0 it looks down."""
    robot: Annotated[int, at_least(0)] = 0
    """Which one, where there are several."""
    width: Pixels = 640
    """Pixels."""
    height: Pixels = 480
    """Pixels."""


MARK_COLOR = (0.85, 0.2, 0.15, 0.8)
MARK_RADIUS = 0.1


@dataclass(frozen=True)
class Mark:
    """A goal in a picture."""

    place: tuple[float, float, float]
    """On the ground, in the world."""
    yaw: float | None = None
    """The heading to take there."""
    height: float | None = None
    """How high above the place the base is to get."""


def read_view(options: Mapping[str, Any], *, robots: int = 1, where: str = "render options") -> View:
    """Return a view from plain data; an unknown or impossible option is an error that names it."""
    if options.get("camera") == "behind" and "azimuth" not in options:
        options = {**options, "azimuth": 0.0}
    view = Validator().build(View, dict(options), where)
    if view.robot >= robots:
        there_are = "there is one robot, number 0" if robots == 1 else f"there are {robots} robots, from 0 on"
        raise UserError(f"{where}.robot={view.robot}: {there_are}")
    return view


NEAR, WHOLE = 1.6, 3.2
"""How far away a camera stands that nobody has placed: metres, or times the height of the base, whichever is further."""


class RobotCamera:
    """Looks at a robot's base. Only one OpenGL context is current: each picture takes it back."""

    def __init__(self, model: Any, body: int, view: View, standing_height: float) -> None:
        self._model, self._body, self._view = model, body, view
        model.vis.global_.offwidth, model.vis.global_.offheight = view.width, view.height
        # Twice as fine as the picture, and no finer: without a GPU, shadows are most of a picture's time.
        finest = 1 << (2 * max(view.width, view.height)).bit_length()
        model.vis.quality.shadowsize = min(model.vis.quality.shadowsize, finest)
        backend = os.environ.get("MUJOCO_GL") or _BACKENDS.get(sys.platform, "egl")
        self._context = importlib.import_module(f"mujoco.{backend}").GLContext(view.width, view.height)
        self._context.make_current()
        self._drawer = _mujoco.MjrContext(model, _mujoco.mjtFontScale.mjFONTSCALE_100)
        self._scene = _mujoco.MjvScene(model, maxgeom=2000)
        self._options = _mujoco.MjvOption()
        self._camera = _mujoco.MjvCamera()
        self._camera.distance = view.distance or max(NEAR, WHOLE * standing_height)
        self._camera.azimuth, self._camera.elevation = view.azimuth, view.elevation
        if view.camera != "fixed":
            self._camera.type = _mujoco.mjtCamera.mjCAMERA_TRACKING
            self._camera.trackbodyid = body
        self._looks_at: np.ndarray | None = None

    def take(self, data: Any, marks: Sequence[Mark] = ()) -> np.ndarray:
        """Return a picture of one robot's simulation, with marks in its world, (H, W, 3) uint8."""
        self._context.make_current()
        if self._view.camera == "behind":
            self._camera.azimuth = self._view.azimuth + math.degrees(yaw_of(torch.from_numpy(data.xquat[self._body])))
        elif self._view.camera == "fixed" and self._looks_at is None:
            self._looks_at = self._camera.lookat[:] = data.xpos[self._body]
        width, height = self._view.width, self._view.height
        every = _mujoco.mjtCatBit.mjCAT_ALL
        _mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, every, self._scene)
        for mark in marks:
            self._draw(mark)
        _mujoco.mjr_setBuffer(_mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawer)
        rectangle = _mujoco.MjrRect(0, 0, width, height)
        _mujoco.mjr_render(rectangle, self._scene, self._drawer)
        picture = np.zeros((height, width, 3), np.uint8)
        _mujoco.mjr_readPixels(picture, None, rectangle, self._drawer)
        return picture[::-1].copy()

    def _draw(self, mark: Mark) -> None:
        """Lay a disc on the ground, and an arrow on it for a heading, or a ball in the air for a height."""
        kinds, (x, y, z) = _mujoco.mjtGeom, mark.place
        flat, color = np.eye(3).ravel(), np.array(MARK_COLOR, np.float32)
        self._add(kinds.mjGEOM_CYLINDER, [MARK_RADIUS, 0.002, 0], [x, y, z + 0.002], flat, color)
        if mark.yaw is not None:
            cos, sin = math.cos(mark.yaw), math.sin(mark.yaw)
            ahead = np.array([[0, -sin, cos], [0, cos, sin], [-1, 0, 0]], float)  # an arrow points along its own z
            self._add(kinds.mjGEOM_ARROW, [0.02, 0.02, 3 * MARK_RADIUS], [x, y, z + 0.03], ahead.ravel(), color)
        if mark.height is not None:
            self._add(kinds.mjGEOM_SPHERE, [0.02] * 3, [x, y, z + mark.height], flat, color)

    def _add(self, kind: Any, size: Sequence[float], place: Sequence[float], turned: np.ndarray, color: np.ndarray) -> None:
        if self._scene.ngeom < self._scene.maxgeom:
            geom = self._scene.geoms[self._scene.ngeom]
            _mujoco.mjv_initGeom(geom, kind, np.array(size, float), np.array(place, float), turned, color)
            self._scene.ngeom += 1

    def close(self) -> None:
        """Free the context."""
        self._drawer.free()
        self._context.free()

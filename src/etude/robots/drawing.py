"""Pictures of a robot, drawn without a display."""

from __future__ import annotations

import importlib
import os
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

_mujoco: Any = mujoco


class RobotCamera:
    """Follows a robot's base from the side. Only one OpenGL context is current: each picture takes it back."""

    def __init__(self, model: Any, body: int, *, width: int = 640, height: int = 480, distance: float = 1.6) -> None:
        self._model, self._size = model, (height, width)
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        backend = os.environ.get("MUJOCO_GL") or "egl"
        self._context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        self._context.make_current()
        self._drawer = _mujoco.MjrContext(model, _mujoco.mjtFontScale.mjFONTSCALE_100)
        self._scene = _mujoco.MjvScene(model, maxgeom=2000)
        self._options = _mujoco.MjvOption()
        self._camera = _mujoco.MjvCamera()
        self._camera.type = _mujoco.mjtCamera.mjCAMERA_TRACKING
        self._camera.trackbodyid = body
        self._camera.distance, self._camera.azimuth, self._camera.elevation = distance, 120.0, -15.0

    def take(self, data: Any) -> np.ndarray:
        """Return a picture of one robot's simulation, (H, W, 3) uint8."""
        self._context.make_current()
        height, width = self._size
        every = _mujoco.mjtCatBit.mjCAT_ALL
        _mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, every, self._scene)
        _mujoco.mjr_setBuffer(_mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawer)
        view = _mujoco.MjrRect(0, 0, width, height)
        _mujoco.mjr_render(view, self._scene, self._drawer)
        picture = np.zeros((height, width, 3), np.uint8)
        _mujoco.mjr_readPixels(picture, None, view, self._drawer)
        return picture[::-1].copy()

    def close(self) -> None:
        """Free the context."""
        self._drawer.free()
        self._context.free()

"""MuJoCo's own viewer, with what it does not know drawn into its scene, and keys that drive."""

from __future__ import annotations

import copy
import importlib
import sys
import threading
import warnings
from itertools import pairwise
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.environments.display import has_display
from etude.errors import EtudeError, UserError
from etude.viewing.colours import ASKED, DONE, FORCE, GOAL, MOTION, SCAN, Colour
from etude.viewing.described import facts, velocities
from etude.viewing.marks import Marks
from etude.viewing.show import KEYS, Screen, Show

_mujoco: Any = mujoco
_GEOM = _mujoco.mjtGeom
CLOSING_S = 10.0
UNDONE_FOR = 5
"""Pictures after a key of ours in which what MuJoCo's viewer does with it is undone: it comes a picture or two late."""
SHAFT = 0.016
"""Metres of an arrow's radius."""
DOT = 0.012
GOAL_RADIUS = 0.08
POLE = 0.6
"""Metres of the pole on the place to go to."""
WAY_OUT = "`--browser` shows it in a browser, and `etude play RUN --video FILE.mp4` records a run"
_NAMED = {32: "space", 256: "esc", 262: "right", 263: "left", 264: "down", 265: "up", 333: "-", 334: "="}
"""GLFW's codes of keys that are no letters; those of letters are the letters' own."""


class MujocoWindow(Screen):
    """Shows copies of the robot's model and state: what is done to them with the mouse, the robot never feels."""

    def __init__(self, show: Show) -> None:
        require_window()
        robots = show.live.robots
        self._model = copy.deepcopy(robots.scene.model)
        self._data = _mujoco.MjData(self._model)
        self._ghost = _mujoco.MjData(self._model)
        _mujoco.mj_copyData(self._data, self._model, show.live.data())
        self._show, self._undo = show, 0
        viewer: Any = importlib.import_module("mujoco.viewer")
        before = {*threading.enumerate()}
        self._viewer = viewer.launch_passive(
            self._model, self._data, key_callback=self._hear, show_left_ui=False, show_right_ui=False
        )
        self._threads = {*threading.enumerate()} - before
        with self._viewer.lock():
            camera = self._viewer.cam
            camera.type, camera.trackbodyid = _mujoco.mjtCamera.mjCAMERA_TRACKING, robots.scene.base_body
            camera.distance, camera.azimuth, camera.elevation = 6 * max(robots.scene.description.height, 0.25), 120.0, -20.0
        self._flags = self._viewer.opt.flags.copy(), self._viewer.user_scn.flags.copy()

    @property
    def is_open(self) -> bool:
        """Whether the window is there."""
        return self._viewer.is_running()

    def _hear(self, code: int) -> None:
        """Called in the window's own thread."""
        key = _NAMED.get(code, chr(code).lower() if code < 128 else "")
        if key in KEYS:
            self._undo = UNDONE_FOR
            self._show.later.put(lambda: self._show.press(key))

    def draw(self, show: Show) -> None:
        """Show the present."""
        live = show.live
        marks = live.marks()
        with self._viewer.lock():
            self._keep_look()
            _mujoco.mj_copyData(self._data, self._model, live.data())
            scene = self._viewer.user_scn
            scene.ngeom = 0
            draw_marks(scene, marks, show)
            if marks.motion is not None and show.layers["motion"]:
                self._draw_motion(scene, marks.motion)
        names, values = zip(*_texts(show), strict=True)
        font, place = _mujoco.mjtFontScale.mjFONTSCALE_150, _mujoco.mjtGridPos.mjGRID_TOPLEFT
        self._viewer.set_texts((font, place, "\n".join(names), "\n".join(values)))
        self._viewer.sync()

    def _keep_look(self) -> None:
        """Undo what MuJoCo's viewer takes our keys for: w is its wire frame, s its shadows."""
        options, scene = self._viewer.opt, self._viewer.user_scn
        if self._undo:
            self._undo -= 1
            options.flags[:], scene.flags[:] = self._flags
        else:
            self._flags = options.flags.copy(), scene.flags.copy()

    def _draw_motion(self, scene: Any, qpos: np.ndarray) -> None:
        ghost, first = self._ghost, scene.ngeom
        ghost.qpos[:] = qpos
        _mujoco.mj_kinematics(self._model, ghost)
        parts = _mujoco.mjtCatBit.mjCAT_DYNAMIC
        _mujoco.mjv_addGeoms(self._model, ghost, self._viewer.opt, self._viewer.perturb, parts.value, scene)
        for number in range(first, scene.ngeom):
            scene.geoms[number].rgba[:] = MOTION

    def close(self) -> None:
        """Close the window, and wait until it is: a program that ends while it draws crashes."""
        self._viewer.close()
        for thread in self._threads:
            thread.join(CLOSING_S)


def draw_marks(scene: Any, marks: Marks, show: Show) -> None:
    """Add marks to a scene of MuJoCo's, as far as it has room."""
    if show.layers["velocity"]:
        for arrow, arc, colour in ((marks.asked, marks.asked_turn, ASKED), (marks.done, marks.done_turn, DONE)):
            if arrow is not None:
                _add_arrow(scene, arrow[0], arrow[1], colour)
            if arc is not None:
                for one, other in pairwise(arc[:-1]):
                    _add_between(scene, _GEOM.mjGEOM_CAPSULE, one, other, SHAFT / 2, colour)
                _add_arrow(scene, arc[-2], arc[-1], colour)
    if show.layers["forces"]:
        for start, end in marks.forces:
            _add_arrow(scene, start, end, FORCE)
    if show.layers["scan"]:
        for point in marks.scan:
            _add_ball(scene, point, DOT, SCAN)
    if show.layers["goal"] and marks.goal is not None:
        _add_ball(scene, marks.goal, GOAL_RADIUS, GOAL)
        _add_between(scene, _GEOM.mjGEOM_CAPSULE, marks.goal, marks.goal + np.array([0.0, 0.0, POLE]), 0.01, GOAL)


def _add_arrow(scene: Any, start: np.ndarray, end: np.ndarray, colour: Colour) -> None:
    _add_between(scene, _GEOM.mjGEOM_ARROW, start, end, SHAFT, colour)


def _add_between(scene: Any, kind: Any, start: np.ndarray, end: np.ndarray, radius: float, colour: Colour) -> None:
    geom = _new_geom(scene, kind, np.zeros(3), np.zeros(3), colour)
    if geom is not None:
        _mujoco.mjv_connector(geom, kind, radius, start, end)


def _add_ball(scene: Any, place: np.ndarray, radius: float, colour: Colour) -> None:
    _new_geom(scene, _GEOM.mjGEOM_SPHERE, np.full(3, radius), place, colour)


def _new_geom(scene: Any, kind: Any, size: np.ndarray, place: np.ndarray, colour: Colour) -> Any:
    if scene.ngeom >= scene.maxgeom:
        return None
    geom = scene.geoms[scene.ngeom]
    _mujoco.mjv_initGeom(geom, kind, size, place, np.eye(3).ravel(), np.array(colour, np.float32))
    scene.ngeom += 1
    return geom


def _texts(show: Show) -> list[tuple[str, str]]:
    numbers = [(name, f"{done} {asked}") for name, done, asked in velocities(show)]
    return [(name, value.encode("ascii", "replace").decode()) for name, value in _plain(facts(show)) + numbers]


def _plain(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """MuJoCo's font knows no other letters than those of ASCII."""
    return [(name, value.replace("·", "|").replace("×", "x")) for name, value in found]


def require_window() -> None:
    """Try to open a window, and refuse where none can be: MuJoCo's viewer would wait forever for one."""
    if not has_display():
        raise UserError(f"no display for a window: {WAY_OUT}")
    if sys.platform == "darwin":
        viewer: Any = importlib.import_module("mujoco.viewer")
        if viewer._MJPYTHON is None:
            raise UserError(f"on macOS MuJoCo's viewer needs its own interpreter: mjpython -m etude view …; {WAY_OUT}")
        return
    glfw: Any = importlib.import_module("glfw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not glfw.init():
            raise EtudeError(f"no window can be opened on this display: {WAY_OUT}")
        glfw.window_hint(glfw.VISIBLE, 0)
        window = glfw.create_window(16, 16, "etude", None, None)
        glfw.default_window_hints()
        if not window:
            raise EtudeError(f"no window with OpenGL can be opened on this display: {WAY_OUT}")
        glfw.destroy_window(window)

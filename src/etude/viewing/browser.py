"""A robot in a browser: its shapes, the ground around it and what is drawn beside it, in a scene of viser's.

    /world                       moves against the robot, so that the camera goes along and may still be turned with the mouse
        /robot/N   /motion/N     a frame for each body, with its shapes below
        /ground                  tiles that go along, or the part of a terrain that the robot is on
        /asked …                 marks

No name of a robot's file is part of the page: nodes have numbers.
"""

from __future__ import annotations

import math
import time
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.robots.scene import FLOOR
from etude.viewing.browser_marks import PageMarks
from etude.viewing.browser_panel import Panel
from etude.viewing.browser_server import PageServer
from etude.viewing.colours import MOTION, as_bytes
from etude.viewing.door import Door
from etude.viewing.ground import GroundPatch
from etude.viewing.marks import Marks
from etude.viewing.shapes import Shape, shapes_of
from etude.viewing.show import Screen, Show

_mujoco: Any = mujoco
EVERY_S = 1 / 30
"""Seconds between pictures."""
NARROW = 600
"""Pixels."""
PANEL_EVERY_S = 0.2
TILES = 24
"""Of the flat ground, to each side one metre: it moves along by two of them at a time."""
LIGHT, DARK, GROUND = (204, 212, 219), (179, 189, 199), (168, 176, 170)


class Page(Screen):
    """Everything that a page shows. It goes on for as long as nobody stops it."""

    def __init__(self, show: Show, door: Door) -> None:
        self.address = door.address
        self._show, live = show, show.live
        robots = live.robots
        self._model = robots.scene.model
        self._ghost_data = _mujoco.MjData(self._model)
        self._base = robots.scene.base_body
        self._server = PageServer(door, "Etude")
        scene = self._server.scene
        scene.set_up_direction("+z")
        scene.configure_default_lights(enabled=True, cast_shadow=True)
        size = self._size = max(robots.scene.description.height, 0.25)
        self._server.initial_camera.position = (1.6 * size, -5.0 * size, 2.6 * size)
        self._server.initial_camera.look_at = (0.0, 0.0, 0.8 * size)
        self._world = scene.add_frame("/world", show_axes=False)
        shapes = shapes_of(self._model, FLOOR)
        self._bodies = self._add_bodies("/world/robot", shapes)
        is_followed = robots.motion is not None
        self._ghost = self._add_bodies("/world/motion", shapes, MOTION) if is_followed else {}
        self._patch = None if robots.terrain is None else GroundPatch(robots.terrain)
        self._floor = self._add_tiles() if self._patch is None else None
        self._marks = PageMarks(scene)
        self._panel = Panel(self._server, show)
        self._server.on_client_connect(self._leave_room)
        self._drawn = self._told = -math.inf
        self.draw(show)

    @property
    def is_open(self) -> bool:
        """Always: pages come and go."""
        return True

    def draw(self, show: Show) -> None:
        """Show the present, as often as a page can use it."""
        now = time.perf_counter()
        is_first = self._drawn == -math.inf
        if now - self._drawn < EVERY_S or not (is_first or self._server.get_clients()):
            return  # nobody could see it
        self._drawn = now
        if now - self._told >= PANEL_EVERY_S:
            self._told = now
            self._panel.tell(show)
        data, marks = show.live.data(), show.live.marks()
        with self._server.atomic():
            self._move(self._bodies, data)
            self._follow(data.xpos[self._base])
            self._draw_ghost(marks, show)
            self._marks.draw(marks, show.layers)

    def _leave_room(self, client: Any) -> None:
        """On a narrow screen the panel covers the lower half, so the robot is shown above."""
        if client.camera.image_width < NARROW:
            size = self._size
            client.camera.position, client.camera.look_at = (2.4 * size, -7.5 * size, 2.6 * size), (0.0, 0.0, -1.2 * size)

    def _draw_ghost(self, marks: Marks, show: Show) -> None:
        for frame in self._ghost.values():
            frame.visible = show.layers["motion"] and marks.motion is not None
        if marks.motion is not None:
            self._ghost_data.qpos[:] = marks.motion
            _mujoco.mj_kinematics(self._model, self._ghost_data)
            self._move(self._ghost, self._ghost_data)

    def _add_bodies(self, where: str, shapes: list[Shape], colour: Any = None) -> dict[int, Any]:
        scene, frames = self._server.scene, {}
        for number, shape in enumerate(shapes):
            body = shape.body
            if body not in frames:
                frames[body] = scene.add_frame(f"{where}/{body}", show_axes=False)
            painted = shape.colour if colour is None else np.array(colour)
            scene.add_mesh_simple(
                f"{where}/{body}/{number}",
                shape.points.astype(np.float32),
                shape.faces.astype(np.uint32),
                color=as_bytes(tuple(np.clip(painted, 0, 1).tolist())),
                opacity=None if painted[3] >= 1 else float(painted[3]),
                position=shape.place,
                wxyz=shape.turn,
                side="double",
                cast_shadow=colour is None,
            )
        return frames

    def _add_tiles(self) -> Any:
        scene = self._server.scene
        frame = scene.add_frame("/world/ground", show_axes=False)
        for parity, colour in enumerate((LIGHT, DARK)):
            corners = [(x, y) for x in range(-TILES, TILES) for y in range(-TILES, TILES) if (x + y) % 2 == parity]
            low = np.array(corners, np.float32)
            square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
            flat = (low[:, None] + square).reshape(-1, 2)
            points = np.column_stack([flat, np.zeros(len(flat), np.float32)])
            first = 4 * np.arange(len(low), dtype=np.uint32)[:, None]
            faces = np.concatenate([first + np.array(each, np.uint32) for each in ([0, 1, 2], [0, 2, 3])])
            scene.add_mesh_simple(f"/world/ground/{parity}", points, faces, color=colour, side="double", cast_shadow=False)
        return frame

    def _move(self, frames: dict[int, Any], data: Any) -> None:
        for body, frame in frames.items():
            frame.position, frame.wxyz = data.xpos[body].copy(), data.xquat[body].copy()

    def _follow(self, base: np.ndarray) -> None:
        if self._panel.follows:
            ground = 0.0 if self._patch is None else base[2] - self._show.live.robots.scene.description.height
            self._world.position = (-base[0], -base[1], -ground)
        if self._floor is not None:
            self._floor.position = (2.0 * round(base[0] / 2), 2.0 * round(base[1] / 2), 0.0)
        surface = None if self._patch is None else self._patch.around(base[:2])
        if surface is not None:
            points, faces = surface
            self._server.scene.add_mesh_simple(
                "/world/ground",
                points.astype(np.float32),
                faces.astype(np.uint32),
                color=GROUND,
                flat_shading=True,
                side="double",
                cast_shadow=False,
            )

    def close(self) -> None:
        """Stop the server, and with it what listened."""
        self._server.stop()

"""Marks in a scene of viser's."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.viewing.colours import ASKED, DONE, FORCE, GOAL, SCAN, Colour, as_bytes
from etude.viewing.marks import Marks
from etude.viewing.show import Layers

SHAFT, HEAD, HEAD_LENGTH = 0.012, 0.03, 0.06
LINE = 0.015
DOT = 0.022
POLE = 0.6
_NO_ARROWS = np.zeros((0, 2, 3), np.float32)


class PageMarks:
    """Nodes that are made once and moved after that."""

    def __init__(self, scene: Any) -> None:
        self._arrows = {
            name: _add_arrows(scene, f"/world/{name}", colour)
            for name, colour in (("asked", ASKED), ("done", DONE), ("forces", FORCE))
        }
        self._arcs = {
            name: _add_lines(scene, f"/world/{name}_turn", colour) for name, colour in (("asked", ASKED), ("done", DONE))
        }
        self._scan = scene.add_point_cloud(
            "/world/scan",
            np.zeros((1, 3), np.float32),
            as_bytes(SCAN),
            point_size=DOT,
            point_shape="circle",
            precision="float32",
            visible=False,
        )
        self._goal = scene.add_frame("/world/goal", show_axes=False, visible=False)
        scene.add_icosphere("/world/goal/ball", 0.08, as_bytes(GOAL), cast_shadow=False)
        scene.add_cylinder("/world/goal/pole", 0.01, POLE, as_bytes(GOAL), position=(0.0, 0.0, POLE / 2), cast_shadow=False)

    def draw(self, marks: Marks, layers: Layers) -> None:
        """Move what is shown, and hide the rest."""
        shows = layers["velocity"]
        for name, arrow, arc in (("asked", marks.asked, marks.asked_turn), ("done", marks.done, marks.done_turn)):
            found = [each for each in (arrow, None if arc is None else arc[-2:]) if each is not None]
            _set_points(self._arrows[name], np.array(found, np.float32) if found and shows else _NO_ARROWS)
            segments = _NO_ARROWS if arc is None or not shows else np.stack([arc[:-2], arc[1:-1]], 1)
            _set_points(self._arcs[name], segments)
        _set_points(self._arrows["forces"], marks.forces if layers["forces"] else _NO_ARROWS)
        _set_points(self._scan, marks.scan if layers["scan"] else _NO_ARROWS)
        self._goal.visible = marks.goal is not None and layers["goal"]
        if marks.goal is not None:
            self._goal.position = marks.goal


def _set_points(node: Any, points: np.ndarray) -> None:
    if node.visible != bool(len(points)):
        node.visible = bool(len(points))
    if len(points):
        node.points = points.astype(np.float32)


def _add_arrows(scene: Any, name: str, colour: Colour) -> Any:
    nothing = np.zeros((1, 2, 3), np.float32)
    size = {"shaft_radius": SHAFT, "head_radius": HEAD, "head_length": HEAD_LENGTH}
    return scene.add_arrows(name, nothing, as_bytes(colour), visible=False, **size)


def _add_lines(scene: Any, name: str, colour: Colour) -> Any:
    nothing = np.zeros((1, 2, 3), np.float32)
    return scene.add_line_segments(name, nothing, as_bytes(colour), thickness=LINE, visible=False)

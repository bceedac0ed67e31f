"""CarRacing's car, drawn as Gymnasium draws it, with the corners of all its parts moved at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics as reference

from etude.environments.box2d.road_drawing import View

_HALF_WIDTH = reference.WHEEL_W * reference.SIZE
_MARK = 1.2
"""The angle of a tyre that its white mark covers, in radians."""


class CarShape:
    """The parts of one episode's car: wheels in order, then the hull's polygons."""

    def __init__(self, car: Any) -> None:
        self._wheels = car.wheels
        parts = [(number, body, fixture) for number, body in enumerate(car.drawlist) for fixture in body.fixtures]
        corners = [fixture.shape.vertices for _, _, fixture in parts]
        ends = np.cumsum([len(some) for some in corners]).tolist()
        self._spans = list(zip([0, *ends[:-1]], ends, strict=True))
        self._colors = [[int(part * 255) for part in body.color] for _, body, _ in parts]
        self._transforms = [(body.transform.q, body.position) for body in car.drawlist]  # proxies of what Box2D moves
        self._bodies = np.array([number for number, _, fixture in parts for _ in fixture.shape.vertices] + _MARK_BODIES)
        self._corners = np.zeros((2, len(self._bodies)), np.float32)  # in its body's frame; the last are those of the marks
        self._corners[:, : ends[-1]] = np.array([corner for some in corners for corner in some]).T
        self._marks = self._corners[:, ends[-1] :]
        self._marks[0] = np.array([-_HALF_WIDTH, _HALF_WIDTH, _HALF_WIDTH, -_HALF_WIDTH] * 4)

    def draw(self, surface: pygame.Surface, view: View) -> None:
        """Draw wheels with their marks, then the hull."""
        marked = self._turn_marks()
        # Box2D's own arithmetic is in single precision, in this order.
        cos, sin, left, up = np.array([(q.c, q.s, p.x, p.y) for q, p in self._transforms], np.float32).T[:, self._bodies]
        x, y = self._corners
        x, y = (cos * x - sin * y) + left, (sin * x + cos * y) + up
        points = np.stack(view.place(x.astype(np.float64), y.astype(np.float64)), -1).tolist()
        first_mark = self._spans[-1][1]
        for number, ((start, end), color) in enumerate(zip(self._spans, self._colors, strict=True)):
            pygame.draw.polygon(surface, color, points[start:end])
            if number < len(marked) and marked[number]:
                start = first_mark + 4 * number
                pygame.draw.polygon(surface, reference.WHEEL_WHITE, points[start : start + 4])

    def _turn_marks(self) -> list[bool]:
        """Put the marks where the wheels have turned them; returns which of them are on the upper side."""
        marked, edges = [], []
        for wheel in self._wheels:
            begin, end = wheel.phase, wheel.phase + _MARK
            down_begin, down_end = math.sin(begin) > 0, math.sin(end) > 0
            marked.append(not (down_begin and down_end))
            first, last = math.cos(begin), math.cos(end)
            if down_begin:
                first = math.copysign(1.0, first) if first else 0.0
            if down_end:
                last = math.copysign(1.0, last) if last else 0.0
            first, last = reference.WHEEL_R * first * reference.SIZE, reference.WHEEL_R * last * reference.SIZE
            edges += [first, first, last, last]
        self._marks[1] = edges
        return marked


_MARK_BODIES = [number for number in range(4) for _ in range(4)]

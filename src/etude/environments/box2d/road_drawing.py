"""CarRacing's field, grass and road, drawn as Gymnasium draws them but for what can't be seen.

Gymnasium turns and scales some 700 polygons a frame, corner by corner, and draws those near the window. Here their centres
are moved at once, in NumPy, and only those in the picture are looked at closer. They are drawn by the same calls with the
same whole numbers in the same order, so every pixel is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import car_racing as reference
from pygame import gfxdraw

WIDTH, HEIGHT = reference.WINDOW_W, reference.WINDOW_H
ANCHOR = (WIDTH / 2, HEIGHT / 4)
"""Where in the picture the car is."""
_REACH = reference.MAX_SHAPE_DIM
_SMOOTHED = 2
"""Pixels by which a smoothed edge may leave the box around a polygon's corners, one for rounding included."""
_FARTHEST = float(np.hypot(WIDTH / 2, HEIGHT * 3 / 4)) + 2 * _SMOOTHED
"""Pixels from the car to the farthest corner of the picture, and some more."""


class View:
    """Where the camera is: how a point of the field becomes one of the picture, in the very operations of Gymnasium."""

    __slots__ = ("angle", "cos", "offset", "position", "sin", "zoom")

    def __init__(self, position: tuple[float, float], angle: float, zoom: float) -> None:
        self.position, self.angle, self.zoom = position, angle, zoom
        moved = pygame.math.Vector2(-position[0] * zoom, -position[1] * zoom).rotate_rad(angle)
        self.offset = ANCHOR[0] + moved[0], ANCHOR[1] + moved[1]
        self.cos, self.sin = pygame.math.Vector2(1, 0).rotate_rad(angle)  # with pygame's exact quarter turns

    def place(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return where points of the field are in the picture."""
        cos, sin, zoom, offset = self.cos, self.sin, self.zoom, self.offset
        return (x * cos - y * sin) * zoom + offset[0], (x * sin + y * cos) * zoom + offset[1]

    def sees_only_field(self) -> bool:
        """Whether no edge of the field is in the picture, however it is turned."""
        reach = reference.PLAYFIELD - _FARTHEST / self.zoom
        return abs(self.position[0]) < reach and abs(self.position[1]) < reach


class Road:
    """What lies on the field of one episode: patches of grass, then the tiles and borders of the road."""

    def __init__(self, road_poly: list[tuple[Any, Any]], tiles: Any, grass_color: Any) -> None:
        grass = len(_GRASS_CORNERS)
        corners = np.empty((grass + len(road_poly), 4, 2))
        corners[:grass] = _GRASS_CORNERS
        corners[grass:] = [polygon for polygon, _ in road_poly]
        self._x, self._y = np.ascontiguousarray(corners.T)  # (4, polygons) each
        centers = corners.mean(1, keepdims=True)
        self._centers = np.ascontiguousarray(centers[:, 0].T)  # (2, polygons)
        self._radii = np.hypot(*(corners - centers).T).max(0)
        self._colors = np.empty((len(corners), 3))
        self._colors[:grass] = grass_color
        self._share_colors(road_poly, iter(tiles), self._colors[grass:])

    def _share_colors(self, road_poly: list[tuple[Any, Any]], tiles: Any, shared: np.ndarray) -> None:
        """A tile that the car touches changes its colour in place: let that place be ours."""
        for index, ((polygon, color), row) in enumerate(zip(road_poly, shared, strict=True)):
            row[:] = color
            if isinstance(color, np.ndarray):  # and not a border, which is a tuple
                next(tiles).color = row
                road_poly[index] = polygon, row

    def draw(self, surface: pygame.Surface, view: View, top: int = 0) -> None:
        """Draw what can be seen from row `top` on; what is above may be left out."""
        chosen = self._near(view, top)
        x, y = view.place(self._x[:, chosen], self._y[:, chosen])
        seen = ((x >= -_REACH) & (x <= WIDTH + _REACH) & (y >= -_REACH) & (y <= HEIGHT + _REACH)).any(0)  # Gymnasium's rule
        seen &= (x.max(0) >= -_SMOOTHED) & (x.min(0) <= WIDTH + _SMOOTHED)
        seen &= (y.max(0) >= top - _SMOOTHED) & (y.min(0) <= HEIGHT + _SMOOTHED)
        points = np.stack((x.T[seen], y.T[seen]), -1).astype(np.int64).tolist()  # gfxdraw cuts decimals off, too
        colors = self._colors[chosen[seen]].astype(np.int64).tolist()
        aapolygon, filled_polygon = gfxdraw.aapolygon, gfxdraw.filled_polygon
        for polygon, color in zip(points, colors, strict=True):
            aapolygon(surface, polygon, color)
            filled_polygon(surface, polygon, color)

    def _near(self, view: View, top: int) -> np.ndarray:
        """Choose by circles around polygons."""
        x, y = view.place(*self._centers)
        reach = self._radii * view.zoom
        reach += 2 * _SMOOTHED
        near_x = np.abs(x - WIDTH / 2) < reach + WIDTH / 2
        return np.flatnonzero(near_x & (np.abs(y - (HEIGHT + top) / 2) < reach + (HEIGHT - top) / 2))


def draw_field(surface: pygame.Surface, view: View, color: Any) -> None:
    """Draw the ground, and black where it ends."""
    if view.sees_only_field():
        surface.fill(_whole(color))
        return
    surface.fill((0, 0, 0))
    bound = reference.PLAYFIELD
    x, y = view.place(np.array([bound, bound, -bound, -bound]), np.array([bound, -bound, -bound, bound]))
    polygon = np.stack((x, y), -1).astype(np.int64).tolist()
    gfxdraw.aapolygon(surface, polygon, _whole(color))
    gfxdraw.filled_polygon(surface, polygon, _whole(color))


def _whole(color: Sequence[float]) -> tuple[int, ...]:
    return tuple(map(int, color))


def _grass_corners() -> np.ndarray:
    """Every other patch in both directions, (patches, 4, 2)."""
    size = reference.GRASS_DIM
    starts = [(size * x, size * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
    return np.array([[(x + size, y), (x, y), (x, y + size), (x + size, y + size)] for x, y in starts])


_GRASS_CORNERS = _grass_corners()

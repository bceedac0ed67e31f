"""CarRacing-v3 as Gymnasium has it, several times as fast: the same physics, rewards, random numbers and pixels.

Gymnasium draws 1000 x 800 pixels, turns them upside down and shrinks them to 96 x 96: first every row, then every column. Rows
don't mix while they are shrunk, so here they are shrunk before they are turned. The panel hides some of the field's rows.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import car_racing as reference

from etude.environments.box2d import panel_drawing
from etude.environments.box2d.car import Car
from etude.environments.box2d.car_drawing import CarShape
from etude.environments.box2d.panel_drawing import HIDDEN
from etude.environments.box2d.road_drawing import HEIGHT, WIDTH, Road, View, draw_field
from etude.environments.box2d.track import START, find_track, lay_road

_SIZE = reference.STATE_W, reference.STATE_H


class CarRacing(reference.CarRacing):
    """Draws what can be seen, and moves its car with fewer detours."""

    _prepared: Any = None
    _road: Road
    _car_shape: CarShape

    def step(self, action: Any) -> Any:
        """Act; Gymnasium's `reset` takes the first step of an episode itself, with no action."""
        self._prepare()
        return super().step(action)

    def _create_track(self) -> bool:
        if self.verbose:
            return super()._create_track()  # which tells about it
        self.road, self.start_alpha = [], START
        track = find_track(self.np_random)
        if track is None:
            return False
        self.track = track
        lay_road(self, track)
        return True

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels" or not panel_drawing.fits(self.car):
            return super()._render(mode)
        return _canvas.picture(self, self._road, self._car_shape)

    def _render_road(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        """Gymnasium's other pictures, for people, hold the same field."""
        self._prepare()
        car: Any = self.car
        surface: Any = self.surf
        view = View((car.hull.position.x, car.hull.position.y), angle, zoom)
        draw_field(surface, view, self.bg_color)
        self._road.draw(surface, view)

    def _prepare(self) -> None:
        """Get ready for the track and the car of a new episode."""
        if self._prepared is not self.car and self.car is not None:
            self._prepared = Car.adopt(self.car)
            self._road = Road(self.road_poly, self.road, self.grass_color)
            self._car_shape = CarShape(self.car)


class _Canvas(threading.local):
    """Surfaces to draw on, one set for all the copies of a thread: pygame lets go of the interpreter while it draws."""

    def __init__(self) -> None:
        field, field_pixels = _surface(WIDTH, HEIGHT)
        panel, panel_pixels = _surface(WIDTH, HEIGHT)
        self._ground, self._black = field_pixels[HIDDEN:], panel_pixels[-HIDDEN:]
        narrow, self._rows = _surface(_SIZE[0], HEIGHT)
        self._field, self._seen_field = field, field.subsurface((0, HIDDEN, WIDTH, HEIGHT - HIDDEN))
        self._panel, self._seen_panel = panel, panel.subsurface((0, HEIGHT - HIDDEN, WIDTH, HIDDEN))
        self._narrow, self._narrow_panel = narrow, narrow.subsurface((0, HEIGHT - HIDDEN, _SIZE[0], HIDDEN))
        self._narrow_field, self._field_rows = _surface(_SIZE[0], HEIGHT - HIDDEN)
        self._small, self._pixels = _surface(*_SIZE)

    def picture(self, env: Any, road: Road, car_shape: CarShape) -> np.ndarray:
        """Return what `env` shows of itself, (96, 96, 3)."""
        hull = env.car.hull
        position = hull.position
        # The first second zooms in.
        zoom = 0.1 * reference.SCALE * max(1 - env.t, 0) + reference.ZOOM * reference.SCALE * min(env.t, 1)
        view = View((position.x, position.y), -hull.angle, zoom)
        if view.sees_only_field():
            # Not `Surface.fill`, which writes past the caches: all that follows would wait for memory.
            self._ground[:] = np.full(WIDTH, _packed(env.bg_color), np.uint32)
        else:
            draw_field(self._field, view, env.bg_color)
        road.draw(self._field, view, top=HIDDEN)
        car_shape.draw(self._field, view)
        self._black[:] = np.zeros(WIDTH, np.uint32)
        panel_drawing.draw_panel(self._panel, env.car, env.reward)
        smoothscale = pygame.transform.smoothscale
        smoothscale(self._seen_field, self._narrow_field.get_size(), self._narrow_field)
        smoothscale(self._seen_panel, self._narrow_panel.get_size(), self._narrow_panel)
        self._rows[: HEIGHT - HIDDEN] = self._field_rows[::-1]
        smoothscale(self._narrow, _SIZE, self._small)
        return self._colors()

    def _colors(self) -> np.ndarray:
        picture, pixels = (
            np.empty((_SIZE[1], _SIZE[0], 3), np.uint8),
            self._pixels.view(np.uint8).reshape(_SIZE[1], _SIZE[0], 4),
        )
        for channel in range(3):  # a quarter of the time that one copy of all three takes
            picture[..., channel] = pixels[..., channel]
        return picture


def _packed(color: Any) -> int:
    """Return a colour as the pixel of a surface below."""
    red, green, blue = map(int, color)
    return int.from_bytes((red, green, blue, 0), sys.byteorder)


def _surface(width: int, height: int) -> tuple[pygame.Surface, np.ndarray]:
    """Return a surface, and its pixels as an array of rows."""
    pixels: Any = np.zeros((height, width), np.uint32)
    return pygame.image.frombuffer(pixels, (width, height), "RGBX"), pixels


_canvas = _Canvas()

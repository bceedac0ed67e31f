"""The black panel below CarRacing's picture: the score, and bars for the speed, the wheels, the steering and the turning."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pygame

from etude.environments.box2d.road_drawing import HEIGHT, WIDTH

_COLUMN, _ROW = WIDTH / 40.0, HEIGHT / 40.0
HIDDEN = 5 * HEIGHT // 40
"""Rows of the panel, the lowest of the picture: what the field has there is not seen."""
_TALLEST = 4.0
"""A bar of more rows than this reaches out of the panel."""
_LEAST = 1e-4
"""Values below are not drawn."""


def fits(car: Any) -> bool:
    """Whether all bars stay inside of the panel."""
    velocity = car.hull.linearVelocity
    return 0.02 * math.hypot(velocity.x, velocity.y) < _TALLEST and all(
        abs(0.01 * wheel.omega) < _TALLEST for wheel in car.wheels
    )


def draw_panel(surface: pygame.Surface, car: Any, reward: float) -> None:
    """Draw the panel where it is in a whole picture, on black; bars must fit."""
    velocity = car.hull.linearVelocity
    speed = math.sqrt(velocity.x * velocity.x + velocity.y * velocity.y)
    _bar(surface, 5, speed, 0.02, (255, 255, 255))
    for place, wheel, blue in zip((7, 8, 9, 10), car.wheels, _BLUES, strict=True):
        _bar(surface, place, wheel.omega, 0.01, blue)
    _beam(surface, 20, car.wheels[0].joint.angle, -10.0, (0, 255, 0))
    _beam(surface, 30, car.hull.angularVelocity, -0.8, (255, 0, 0))
    text = score(f"{reward:04.0f}")
    place = text.get_rect()
    place.center = (60, HEIGHT - HEIGHT * 2.5 / 40.0)  # type: ignore[assignment] # as Gymnasium gives it
    surface.blit(text, place)


_BLUES = ((0, 0, 255), (0, 0, 255), (51, 0, 255), (51, 0, 255))


def _bar(surface: pygame.Surface, place: int, value: float, scale: float, color: tuple[int, int, int]) -> None:
    if abs(value) > _LEAST:
        top = HEIGHT - (_ROW + _ROW * (scale * value))
        left, right, bottom = place * _COLUMN, (place + 1) * _COLUMN, HEIGHT - _ROW
        pygame.draw.polygon(surface, color, ((left, top), (right, top), (right, bottom), (left, bottom)))


def _beam(surface: pygame.Surface, place: int, value: float, scale: float, color: tuple[int, int, int]) -> None:
    if abs(value) > _LEAST:
        left, right = place * _COLUMN, (place + scale * value) * _COLUMN
        top, bottom = HEIGHT - 4 * _ROW, HEIGHT - 2 * _ROW
        pygame.draw.polygon(surface, color, ((left, top), (right, top), (right, bottom), (left, bottom)))


@lru_cache(maxsize=2048)
def score(text: str) -> pygame.Surface:
    """Return the score as a picture. Most of an episode's have been drawn in those before it."""
    pygame.font.init()
    try:
        return _font().render(text, True, (255, 255, 255), (0, 0, 0))
    except pygame.error:  # pygame has been quit and begun anew since
        _font.cache_clear()
        return _font().render(text, True, (255, 255, 255), (0, 0, 0))


@lru_cache(maxsize=1)
def _font() -> pygame.font.Font:
    return pygame.font.Font(pygame.font.get_default_font(), 42)

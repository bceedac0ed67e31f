"""CarRacing's random tracks, found as Gymnasium finds them and laid with fewer detours: the same numbers to the bit.

A point walks counter-clockwise from checkpoint to checkpoint, some laps; one lap whose ends meet is the road. Who changes an
operation here, or their order, changes the last bits of a track and with them every episode.
"""

from __future__ import annotations

import math
from typing import Any

import Box2D
import numpy as np
from gymnasium.envs.box2d import car_racing as reference

Place = tuple[float, float, float, float]
"""The angle seen from the middle, the road's direction, x, y."""

_CHECKPOINTS = 12
_TURN = 2 * math.pi
START = _TURN * (-0.5) / _CHECKPOINTS
"""The angle at which a lap begins."""
_LAPS, _MOST_STEPS = 4, 2500
_STEP, _TURN_RATE, _WIDTH = reference.TRACK_DETAIL_STEP, reference.TRACK_TURN_RATE, reference.TRACK_WIDTH
_CURVE = reference.BORDER_MIN_COUNT
"""Tiles in a row that must turn hard, and the same way, to get a border."""


def find_track(generator: np.random.Generator) -> list[Place] | None:
    """Return a closed track, or None where the walk did not close."""
    walked = _walk(_checkpoints(generator))
    starts = [i for i in range(len(walked) - 1, 0, -1) if walked[i][0] > START >= walked[i - 1][0]]
    if len(starts) < 2:
        return None
    track = walked[starts[1] : starts[0] - 1]
    (_, direction, x, y), (_, _, last_x, last_y) = track[0], track[-1]
    gap_x, gap_y = math.cos(direction) * (x - last_x), math.sin(direction) * (y - last_y)
    return None if math.sqrt(gap_x * gap_x + gap_y * gap_y) > _STEP else track


def _checkpoints(generator: np.random.Generator) -> list[tuple[float, float, float]]:
    """Draw one in each twelfth of the circle, those at the start and the end farther out: angle, x, y."""
    points = []
    for number in range(_CHECKPOINTS):
        noise = generator.uniform(0, 2 * math.pi * 1 / _CHECKPOINTS)
        angle = 2 * math.pi * number / _CHECKPOINTS + noise
        radius = generator.uniform(reference.TRACK_RAD / 3, reference.TRACK_RAD)
        if number in (0, _CHECKPOINTS - 1):
            angle, radius = 2 * math.pi * number / _CHECKPOINTS, 1.5 * reference.TRACK_RAD
        points.append((angle, radius * math.cos(angle), radius * math.sin(angle)))
    return points


def _walk(checkpoints: list[tuple[float, float, float]]) -> list[Place]:
    x, y, direction = 1.5 * reference.TRACK_RAD, 0.0, 0.0
    target = laps = 0
    was_below = False
    walked: list[Place] = []
    cos, sin, atan2, pi = math.cos, math.sin, math.atan2, math.pi
    while laps <= _LAPS and len(walked) < _MOST_STEPS:
        angle = atan2(y, x)
        if was_below and angle > 0:
            laps += 1
            was_below = False
        if angle < 0:
            was_below = True
            angle += _TURN
        while angle > checkpoints[target % _CHECKPOINTS][0]:
            target += 1
            if target % _CHECKPOINTS == 0:
                angle -= _TURN
        _, target_x, target_y = checkpoints[target % _CHECKPOINTS]
        right_x, right_y = cos(direction), sin(direction)
        aside = right_x * (target_x - x) + right_y * (target_y - y)
        while direction - angle > 1.5 * pi:
            direction -= _TURN
        while direction - angle < -1.5 * pi:
            direction += _TURN
        before = direction
        aside *= reference.SCALE
        if aside > 0.3:
            direction -= min(_TURN_RATE, abs(0.001 * aside))
        if aside < -0.3:
            direction += min(_TURN_RATE, abs(0.001 * aside))
        x += -right_y * _STEP
        y += right_x * _STEP
        walked.append((angle, before * 0.5 + direction * 0.5, x, y))
    return walked


def has_border(track: list[Place]) -> list[bool]:
    """Say which tiles have a border: those of hard turns."""
    directions = np.array([place[1] for place in track])
    turns = directions - np.roll(directions, 1)
    in_a_row = np.stack([np.roll(turns, back) for back in range(_CURVE)])
    hard = (np.abs(in_a_row) > _TURN_RATE * 0.2).all(0)
    border = (hard & (np.abs(np.sign(in_a_row).sum(0)) == _CURVE)).tolist()
    for index in range(len(border)):  # in this order: what was just marked marks others
        if border[index]:
            for back in range(_CURVE):
                border[index - back] = True
    return border


def lay_road(env: Any, track: list[Place]) -> None:
    """Put a track's tiles into the world of `env` and its lists."""
    border = has_border(track)
    shape, create, resting = env.fd_tile.shape, env.world.CreateBody, Box2D.b2BodyDef()  # static by default
    env.fd_tile.isSensor = True
    sides = [_sides(place, _WIDTH) for place in track]
    for index, here in enumerate(sides):
        before = sides[index - 1]
        corners = [here[0], here[1], before[1], before[0]]
        shape.vertices = corners
        tile = create(resting)
        tile.CreateFixture(env.fd_tile)
        tile.userData = tile
        tile.color = env.road_color + 0.01 * (index % 3) * 255
        tile.road_visited, tile.road_friction, tile.idx = False, 1.0, index
        env.road_poly.append((corners, tile.color))
        env.road.append(tile)
        if border[index]:
            color = (255, 255, 255) if index % 2 == 0 else (255, 0, 0)
            env.road_poly.append((_border_corners(track[index], track[index - 1]), color))


def _sides(place: Place, distance: float) -> tuple[tuple[float, float], tuple[float, float]]:
    _, direction, x, y = place
    cos, sin = distance * math.cos(direction), distance * math.sin(direction)
    return (x - cos, y - sin), (x + cos, y + sin)


def _border_corners(here: Place, before: Place) -> list[tuple[float, float]]:
    side = (before[1] > here[1]) - (before[1] < here[1])
    inner, outer = side * _WIDTH, side * (_WIDTH + reference.BORDER)
    (near, far), (far_before, near_before) = (_aside(here, inner, outer), _aside(before, outer, inner))
    return [near, far, far_before, near_before]


def _aside(place: Place, *distances: float) -> list[tuple[float, float]]:
    _, direction, x, y = place
    cos, sin = math.cos(direction), math.sin(direction)
    return [(x + distance * cos, y + distance * sin) for distance in distances]

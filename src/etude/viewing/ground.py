"""The ground around a robot as points and triangles: as fine as it is simulated, but no more of it than is looked at."""

from __future__ import annotations

import numpy as np

from etude.inspecting.surfaces import Surface
from etude.robots.terrain import Terrain

AROUND_M = 12.0
"""Metres to either side of the robot."""
MOST_CELLS = 128
"""To either side: finer ground is shown for fewer metres."""
STRAY_SHARE = 0.35
"""Of the metres to either side; a robot that is further from the middle of what is shown gets another part."""


class GroundPatch:
    """The part of a terrain that is shown."""

    def __init__(self, terrain: Terrain) -> None:
        self._terrain = terrain
        self._cells = min(round(AROUND_M / terrain.config.cell), MOST_CELLS)
        self._middle: np.ndarray | None = None

    def around(self, place: np.ndarray) -> Surface | None:
        """Return the ground around a place (2,) in the world; None while what was returned last still will do."""
        reach = STRAY_SHARE * self._cells * self._terrain.config.cell
        if self._middle is not None and np.abs(place - self._middle).max() < reach:
            return None
        self._middle = np.array(place, float)
        return surface_around(self._terrain, place, self._cells)


def surface_around(terrain: Terrain, place: np.ndarray, cells: int) -> Surface:
    """Return the ground up to so many cells to either side of a place (2,), in the world."""
    cell, heights = terrain.config.cell, terrain.heights
    nearest = np.round((place - terrain.low) / cell - 0.5).astype(int)
    first = np.clip(nearest - cells, 0, np.array(heights.shape) - 2)
    last = np.clip(nearest + cells + 1, first + 2, heights.shape)
    rows, columns = (np.arange(start, stop) for start, stop in zip(first, last, strict=True))
    x, y = np.meshgrid(terrain.low[0] + (rows + 0.5) * cell, terrain.low[1] + (columns + 0.5) * cell, indexing="ij")
    points = np.stack([x, y, heights[np.ix_(rows, columns)]], -1).reshape(-1, 3)
    corner = (np.arange(len(rows) - 1)[:, None] * len(columns) + np.arange(len(columns) - 1)).ravel()
    ahead, left, across = corner + len(columns), corner + 1, corner + len(columns) + 1
    return points, np.concatenate([np.stack([corner, ahead, across], 1), np.stack([corner, across, left], 1)])

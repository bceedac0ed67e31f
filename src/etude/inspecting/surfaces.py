"""Surfaces of a MuJoCo model as points and triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_POINTS = 200_000
"""Of all meshes of a world together."""
FINEST_FIELD = 256
"""Rows and columns of a height field; finer ones are thinned out."""

Surface = tuple[np.ndarray, np.ndarray]
"""Points (n, 3), and the three points of each triangle (m, 3)."""


def mesh_of(model: Any, mesh: int, others: Sequence[dict[str, Any]]) -> Surface | None:
    """Return a mesh; None for no mesh, or where it would be too many points beside the others."""
    if mesh < 0:
        return None
    count, faces = int(model.mesh_vertnum[mesh]), int(model.mesh_facenum[mesh])
    if count + sum(other["count"] for other in others) > MOST_POINTS:
        return None
    first, first_face = int(model.mesh_vertadr[mesh]), int(model.mesh_faceadr[mesh])
    return model.mesh_vert[first : first + count], model.mesh_face[first_face : first_face + faces]


def field_of(model: Any, field: int) -> Surface | None:
    """Return a height field, whose samples lie at the corners of its cells, rows along y."""
    if field < 0:
        return None
    rows, columns, first = int(model.hfield_nrow[field]), int(model.hfield_ncol[field]), int(model.hfield_adr[field])
    half_x, half_y, rise, _ = model.hfield_size[field]
    heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * rise
    at_y, at_x = _thinned(rows), _thinned(columns)
    y, x = np.linspace(-half_y, half_y, rows)[at_y], np.linspace(-half_x, half_x, columns)[at_x]
    grid_x, grid_y = np.meshgrid(x, y)
    points = np.stack([grid_x, grid_y, heights[np.ix_(at_y, at_x)]], -1).reshape(-1, 3)
    corner = (np.arange(len(y) - 1)[:, None] * len(x) + np.arange(len(x) - 1)).ravel()
    right, above, across = corner + 1, corner + len(x), corner + len(x) + 1
    return points, np.concatenate([np.stack([corner, right, across], 1), np.stack([corner, across, above], 1)])


def _thinned(count: int) -> np.ndarray:
    """Which of so many rows are kept: the first and the last are."""
    return np.unique(np.linspace(0, count - 1, min(count, FINEST_FIELD)).round().astype(int))

"""How near the legs of robots come to each other, by their shapes: also where they are simulated as if they could pass."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.robots.scene import Scene, leg_bodies

_mujoco: Any = mujoco
FARTHEST = 0.1
"""Metres from which on it does not matter how far apart legs are."""


def legs_of(scene: Scene) -> list[list[int]]:
    """Return the solid geoms of each foot's leg."""
    model = scene.model
    return [
        [geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) in leg and _is_solid(scene, geom)]
        for leg in leg_bodies(model, scene.feet)
    ]


def _is_solid(scene: Scene, geom: int) -> bool:
    model = scene.model
    paired = {*model.pair_geom1.tolist(), *model.pair_geom2.tolist()}
    return bool(model.geom_contype[geom] or model.geom_conaffinity[geom] or geom in paired)


class LegGaps:
    """Measures the smallest gap between two legs of each robot, m; below 0 they are inside each other."""

    def __init__(self, scene: Scene) -> None:
        self._model, self._data = scene.model, _mujoco.MjData(scene.model)
        legs = legs_of(scene)
        pairs = [pair for one, other in combinations(legs, 2) for pair in product(one, other)]
        self._pairs = np.array(pairs, np.int64).reshape(-1, 2)
        self._reach = scene.model.geom_rbound[self._pairs].sum(1)

    @property
    def has_legs(self) -> bool:
        """Whether there are two legs at least."""
        return len(self._pairs) > 0

    def measure(self, positions: np.ndarray, rotations: np.ndarray) -> np.ndarray:
        """(N, geoms, 3), (N, geoms, 9) → (N,), at most `FARTHEST`."""
        gaps = np.full(len(positions), FARTHEST)
        one, other = self._pairs.T
        # Shapes are looked at only where the spheres around them are near.
        near = np.linalg.norm(positions[:, one] - positions[:, other], axis=-1) - self._reach < FARTHEST
        for robot in np.flatnonzero(near.any(1)):
            self._data.geom_xpos[:], self._data.geom_xmat[:] = positions[robot], rotations[robot]
            gaps[robot] = min(
                _mujoco.mj_geomDistance(self._model, self._data, int(one[pair]), int(other[pair]), FARTHEST, None)
                for pair in np.flatnonzero(near[robot])
            )
        return gaps

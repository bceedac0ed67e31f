"""Shapes as triangles are as large as MuJoCo's, and the ground is where it is."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import torch

from etude.viewing.ground import GroundPatch, surface_around
from etude.viewing.shapes import shapes_of
from etude.viewing.show import Show

SOME = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body><freejoint/>
      <geom type="sphere" size="0.2"/><geom type="capsule" size="0.1 0.3"/><geom type="cylinder" size="0.1 0.3"/>
      <geom type="box" size="0.1 0.2 0.3"/><geom type="ellipsoid" size="0.1 0.2 0.3"/><geom type="mesh" mesh="wedge"/>
      <geom type="sphere" size="0.5" group="3"/>
    </body>
  </worldbody>
</mujoco>
"""


def volume(points: np.ndarray, faces: np.ndarray) -> float:
    """Of a closed surface whose faces look outward."""
    a, b, c = (points[faces[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)


def test_every_kind_of_shape_is_closed_and_as_large_as_it_is() -> None:
    model = mujoco.MjModel.from_xml_string(SOME)  # type: ignore[attr-defined]
    shapes = shapes_of(model, "floor")
    assert len(shapes) == 6  # the hidden group is left out, and so is the ground
    round_of = np.pi * 0.1**2 * 0.6
    wanted = [4 / 3 * np.pi * 0.2**3, round_of + 4 / 3 * np.pi * 0.1**3, round_of, 0.048, 4 / 3 * np.pi * 0.006, 1 / 6]
    for shape, expected in zip(shapes, wanted, strict=True):
        assert np.isclose(volume(shape.points, shape.faces), expected, rtol=0.06), shape


def test_a_robot_in_hidden_groups_is_shown_all_the_same() -> None:
    model = mujoco.MjModel.from_xml_string(SOME)  # type: ignore[attr-defined]
    model.geom_group[:] = 4
    assert len(shapes_of(model, "floor")) == 7


def test_the_ground_is_as_high_as_the_simulation_has_it(show_of: Callable[..., Show]) -> None:
    terrain = show_of("quadruped-rough", terrain={"levels": 2, "columns": 10}).live.robots.terrain
    assert terrain is not None
    points, faces = surface_around(terrain, np.array([3.0, -2.0]), 20)
    assert points.shape == (41 * 41, 3)
    assert faces.max() == len(points) - 1
    model_heights = terrain.height(torch.as_tensor(points[:, :2], dtype=torch.float32))
    np.testing.assert_allclose(points[:, 2], model_heights.numpy(), atol=2e-3)
    normals = np.cross(points[faces[:, 1]] - points[faces[:, 0]], points[faces[:, 2]] - points[faces[:, 0]])
    assert (normals[:, 2] > 0).all()


def test_another_part_is_shown_when_the_robot_has_gone_on(show_of: Callable[..., Show]) -> None:
    terrain = show_of("quadruped-rough", terrain={"levels": 2, "columns": 10}).live.robots.terrain
    assert terrain is not None
    patch = GroundPatch(terrain)
    assert patch.around(np.zeros(2)) is not None
    assert patch.around(np.array([1.0, 0.0])) is None
    assert patch.around(np.array([6.0, 0.0])) is not None
    assert patch.around(np.array([500.0, 0.0])) is not None  # beyond the edge: what there is

"""Feet are pushed up by the ground they stand on, and their height is that of their soles."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etude.config.robots import ResetConfig
from etude.robots.environment import RobotVector
from etude.robots.models.description import MODELS
from tests.robots.robots import rest, robots

STILL = ResetConfig(joints=0.0, velocity=0.0)


@pytest.mark.parametrize("model", ["quadruped", "biped"])
def test_feet_of_a_robot_that_stands_carry_its_weight_and_are_on_the_ground(model: str) -> None:
    environment = robots(2, model=model, reset=STILL)
    rest(environment, 40)
    state = environment.state
    weight = float(environment.scene.model.body_mass.sum()) * 9.81
    assert torch.allclose(state.feet_force[..., 2].sum(1), torch.full((2,), weight), rtol=0.1)
    assert float(state.feet_height.abs().max()) < 0.004


def lowest_corner(environment: RobotVector, foot: str) -> float:
    model, data = environment.scene.model, environment.simulation.data(0)
    geom = model.geom(foot).id
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 3).numpy() * model.geom_size[geom]
    return float((corners @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])[:, 2].min())


@pytest.mark.parametrize("named", ["geom", "body"])
def test_a_tilted_foot_is_as_high_as_its_lowest_corner(named: str, tmp_path: Path) -> None:
    text = (MODELS / "biped.xml").read_text()
    if named == "body":  # whose sensors are about its centre of mass
        text = text.replace('<geom name="L_foot"', '<geom name="L_sole"').replace('<geom name="R_foot"', '<geom name="R_sole"')
    (tmp_path / "biped.xml").write_text(text)
    (tmp_path / "own.yaml").write_text((MODELS / "biped.yaml").read_text())
    environment = robots(1, model=str(tmp_path / "own.yaml"), reset=STILL)
    turned = environment._place_nominal[0].clone()[None]
    turned[0, environment.scene.base_qpos + 2] += 1.0
    for name, angle in (("L_ankle_pitch", 0.5), ("R_ankle_pitch", -0.8), ("R_ankle_roll", 0.3)):
        turned[0, environment.scene.model.joint(name).qposadr[0]] = angle
    environment.simulation.place(torch.ones(1, dtype=torch.bool), turned, torch.zeros_like(environment.simulation.qvel))
    environment.state.refresh()
    geoms = ("L_foot", "R_foot") if named == "geom" else ("L_sole", "R_sole")
    expected = torch.tensor([[lowest_corner(environment, geom) for geom in geoms]], dtype=torch.float32)
    assert torch.allclose(environment.state.feet_height, expected, atol=1e-4)

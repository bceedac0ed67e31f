"""Cameras look at robots as they are told to, and at nothing that they can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.cli import run as command
from etude.config.robots import ResetConfig
from etude.errors import UserError
from etude.robots.driving.drawing import View, read_view
from etude.robots.environment import RobotVector
from etude.runs.run import Run
from tests.robots.robots import robots
from tests.videos import decode

SIZE = {"width": 96, "height": 64}


def picture(environment: RobotVector, **options: Any) -> np.ndarray:
    environment.look(SIZE | options)
    return environment.render()


def moved(environment: RobotVector, x: float, yaw: float = 0.0) -> None:
    """Put every robot somewhere else."""
    qpos, first = environment.simulation.qpos.clone(), environment.scene.base_qpos
    qpos[:, first] = x
    qpos[:, first + 3 : first + 7] = torch.tensor([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)], dtype=torch.float32)
    everyone = torch.ones(environment.num_envs, dtype=torch.bool)
    environment.simulation.place(everyone, qpos, torch.zeros_like(environment.simulation.qvel))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other).mean())


@pytest.fixture
def robot() -> RobotVector:
    return robots(2, reset=ResetConfig(position=0.0, yaw=0.0, joints=0.0, velocity=0.0))


def test_each_option_changes_the_picture(robot: RobotVector) -> None:
    plain = picture(robot)
    assert plain.shape == (64, 96, 3)
    for options in ({"distance": 4.0}, {"elevation": -60.0, "azimuth": 0.0}):
        assert difference(picture(robot, **options), plain) > 1.0, options
    assert difference(picture(robot), plain) == 0.0


def eye(environment: RobotVector) -> np.ndarray:
    """Where the camera was for a picture: two are in the scene, for two eyes."""
    environment.render()
    return np.mean([each.pos for each in environment._camera._scene.camera], 0)  # type: ignore[union-attr] # just used


def test_a_camera_that_nobody_placed_sees_a_tall_robot_from_further_away(robot: RobotVector) -> None:
    tall = robots(1, model="biped", reset=ResetConfig(position=0.0, yaw=0.0, joints=0.0, velocity=0.0))
    away = []
    for environment in (robot, tall):
        environment.look(SIZE)
        away.append(float(np.linalg.norm(eye(environment) - environment.state.base_position[0].numpy())))
    assert away[0] == pytest.approx(1.6, abs=0.05)
    assert away[1] == pytest.approx(3.2 * tall.description.height, abs=0.1)


def test_a_camera_that_follows_goes_along_one_that_is_fixed_stays_and_one_behind_turns_too(robot: RobotVector) -> None:
    seen = {}
    for camera in ("follow", "fixed", "behind"):
        moved(robot, 0.0)
        robot.look(SIZE | {"camera": camera, "distance": 1.2, "azimuth": 0.0, "elevation": 0.0})
        places = [eye(robot)]
        for yaw in (0.0, np.pi / 2):
            moved(robot, 2.0, yaw)
            places.append(eye(robot))
        seen[camera] = [place[:2] for place in places]
    for camera in seen:
        assert np.allclose(seen[camera][0], [-1.2, 0.0], atol=0.05), camera
    assert np.allclose(seen["follow"][1:], [[0.8, 0.0], [0.8, 0.0]], atol=0.05)
    assert np.allclose(seen["fixed"][1:], [[-1.2, 0.0], [-1.2, 0.0]], atol=0.05)
    assert np.allclose(seen["behind"][1:], [[0.8, 0.0], [2.0, -1.2]], atol=0.05)


def test_the_robot_that_is_asked_for_is_the_one_that_is_shown(robot: RobotVector) -> None:
    qpos = robot.simulation.qpos.clone()
    qpos[1, robot.scene.base_qpos + 2] += 1.0
    robot.simulation.place(torch.tensor([False, True]), qpos, torch.zeros_like(robot.simulation.qvel))
    first, second = picture(robot), picture(robot, robot=1)
    assert difference(first, second) > 1.0
    with pytest.raises(UserError, match=r"robot=2: there are 2 robots, from 0 on"):
        picture(robot, robot=2)


def test_options_have_defaults_and_wrong_ones_are_named() -> None:
    assert read_view({}) == View()
    assert read_view({"camera": "behind"}).azimuth == 0.0
    for options, said in (
        ({"distanc": 1}, "unknown key; did you mean 'distance'"),
        ({"camera": "up"}, "must be one of follow, behind, fixed"),
        ({"distance": 0}, "must be above 0"),
        ({"width": 10**6}, "at most 8192"),
        ({"robot": 1}, "there is one robot, number 0"),
    ):
        with pytest.raises(UserError, match=said):
            read_view(options)


def test_trials_are_recorded_each_in_its_file(trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trials", str(trained.path), "--robots", "2", "--seconds", "0.1", "--only", "turn"]
    options = '{"robot": 1, "camera": "fixed", "width": 96, "height": 64}'
    assert command([*words, "--video", str(tmp_path), "--render-options", options]) == 0
    assert {path.name: decode(path).frames.shape for path in tmp_path.glob("*.mp4")} == {"turn.mp4": (6, 64, 96, 3)}
    capsys.readouterr()
    assert command([*words, "--render-options", options]) == 2
    assert "--render-options are of a video" in capsys.readouterr().err
    assert command([*words, "--video", str(tmp_path), "--render-options", '{"zoom": 2}']) == 2
    assert "zoom: unknown key" in capsys.readouterr().err

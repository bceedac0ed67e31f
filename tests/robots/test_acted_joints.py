"""Actions may move some joints alone: the others hold the default pose, in the simulator, in the mirror and in an export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.cli import run as command
from etude.config.robots import ActionConfig, ActuatorConfig, CommandConfig, ResetConfig
from etude.deploy import walk as walking
from etude.deploy.export import export_policy
from etude.deploy.robot_layout import robot_layout
from etude.errors import UserError
from etude.inspecting.table import _own_labels
from etude.using.stored_policy import open_policy
from tests.deploy.conftest import needs_onnx
from tests.robots.robots import robots
from tests.runs_compared import train

KNEES = ActionConfig(joints=(".*_knee", ".*_hip_pitch"))
STILL = ResetConfig(joints=0.0, velocity=0.0)


def test_the_others_hold_their_pose_and_are_seen_as_undone() -> None:
    environment = robots(2, model="biped", action=KNEES, reset=STILL, observations={"actor": {"action": {}}})
    scene = environment.scene
    moved = [name for name in scene.joints if name.endswith(("_knee", "_hip_pitch"))]
    assert environment.single_action_space.shape == (len(moved),) == (4,)
    assert list(_own_labels(environment)) == moved
    wanted = torch.tensor([[0.1, -0.2, 0.3, -1.5], [0.0, 0.0, 0.0, 0.0]])
    seen = environment.step(wanted).observation
    assert isinstance(seen, torch.Tensor)
    whole = torch.zeros(2, len(scene.joints))
    whole[:, scene.acted] = wanted.clamp(-1, 1)
    assert torch.equal(seen, whole)
    target = scene.default_pose + scene.action_scale * whole.numpy()
    np.testing.assert_allclose(environment.simulation.batch.ctrl, target, atol=1e-6)  # type: ignore[attr-defined] # the CPU's


def test_all_of_them_named_are_as_none_named() -> None:
    plain, named = (robots(2, model="biped", action=ActionConfig(joints=joints)) for joints in ((), (".*",)))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        action = torch.rand(2, len(plain.scene.joints), generator=generator) * 2 - 1
        assert torch.equal(plain.step(action).observation, named.step(action).observation)  # type: ignore[arg-type] # one group


def test_left_and_right_change_places_among_those_that_act() -> None:
    mirror = robots(2, model="biped", action=KNEES).mirror()
    names = ["L_hip_pitch", "L_knee", "R_hip_pitch", "R_knee"]
    acted = robots(2, model="biped", action=KNEES).scene
    assert [acted.joints[joint] for joint in acted.acted] == names
    assert mirror.action(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[3.0, 4.0, 1.0, 2.0]]
    one_sided = robots(2, model="biped", action=ActionConfig(joints=("L_.*",)))
    with pytest.raises(UserError, match=r"actions move L_\w+ and not R_\w+ \(environment.robot.action.joints\)"):
        one_sided.mirror()


def test_a_joint_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["train", "biped-flat:ppo", "environment.robot.action.joints=[L_elbow]"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert "environment.robot.action.joints: nothing is called 'L_elbow'" in said[-1]


@needs_onnx
def test_an_export_moves_the_same_joints(tmp_path: Path) -> None:
    words = ("environment.num_envs=4", "training.total_steps=192", "environment.max_episode_steps=20", "evaluation.episodes=1")
    joints = 'environment.robot.action.joints=[".*_knee",".*_hip_pitch"]'
    run = train("biped-flat:ppo", tmp_path, *words, "experiment.device=cpu", joints)
    folder = export_policy(open_policy(run, "last"), ["onnx"], tmp_path / "out").folder
    environment = robots(1, model="biped", action=KNEES)
    assert [joint.name for joint in robot_layout(environment, ["actor"]).joints if joint.acts] == [
        "L_hip_pitch", "L_knee", "R_hip_pitch", "R_knee"
    ]  # fmt: skip
    controller = walking.Controller(folder)
    count = len(controller.joints)
    sensed = walking.Sensed(np.zeros(3), np.array([0.0, 0.0, -1.0]), controller.default, np.full(count, 0.5))
    targets = controller.step(sensed, np.array([0.5, 0.0, 0.0]))
    still = [not name.endswith(("_knee", "_hip_pitch")) for name in controller.joints]
    assert targets.shape == (count,)
    np.testing.assert_array_equal(targets[still], controller.default[still])
    assert (controller.action[np.logical_not(still)] != 0).all()
    first = controller.action
    controller.step(sensed, np.array([0.5, 0.0, 0.0]))
    assert first is not controller.action


STEPPING = ActionConfig(stride=0.5)
ASKED = CommandConfig(standing=0.0, gait_hz=2.0)


def test_actions_of_zero_step_on_the_spot_by_the_gaits_clock() -> None:
    environment = robots(2, model="biped", action=STEPPING, commands=ASKED, reset=STILL)
    scene, memory, still = environment.scene, environment.memory, torch.zeros(2, 12)
    memory.command[1] = 0.0
    seen = set()
    for _ in range(25):
        environment.state.refresh()
        expected = environment.state.reference_pose.numpy().copy()
        environment.step(still)
        asked = environment.simulation.batch.ctrl  # type: ignore[attr-defined] # the CPU's
        half = scene.default_pose + 0.5 * (expected[0] - scene.default_pose)
        np.testing.assert_allclose(asked[0], half, atol=1e-5)
        np.testing.assert_allclose(asked[1], scene.default_pose, atol=1e-6)  # who is asked to stand stands
        seen |= {scene.joints[i][0] for i in np.flatnonzero(np.abs(half - scene.default_pose) > 0.05)}
    assert seen == {"L", "R"}


def test_a_robot_without_a_stride_has_none_to_add() -> None:
    with pytest.raises(UserError, match=r"environment.robot.action.stride=1: needs `stride` in ball.xml"):
        robots(1, model="ball", action=ActionConfig(stride=1.0), terminations={"unstable": {}})


def test_a_stride_is_not_added_to_velocities() -> None:
    wheels = {"all": ActuatorConfig(joints=".*", stiffness=0, damping=1, action_scale=1.0, control="velocity")}
    with pytest.raises(UserError, match=r"action.stride=1: is of positions, and the motor of 'L_hip_pitch' holds a velocity"):
        robots(1, model="biped", action=ActionConfig(stride=1.0), actuators=wheels)


@needs_onnx
def test_an_export_steps_as_the_task_does(tmp_path: Path) -> None:
    words = ("environment.num_envs=4", "training.total_steps=192", "environment.max_episode_steps=20", "evaluation.episodes=1")
    run = train("biped-flat:ppo", tmp_path, *words, "experiment.device=cpu", "environment.robot.action.stride=0.5")
    folder = export_policy(open_policy(run, "last"), ["onnx"], tmp_path / "out").folder
    environment = robots(1, model="biped", action=STEPPING, commands=replace(ASKED, gait_hz=1.4), reset=STILL)
    controller = walking.Controller(folder)
    environment.commands.fixed = torch.tensor([0.5, 0.0, 0.0])
    environment.reset([0])
    controller.phase = float(environment.memory.phase[0])
    sensed = walking.Sensed(np.zeros(3), np.array([0.0, 0.0, -1.0]), controller.default, np.zeros(12))
    for _ in range(10):
        targets = controller.step(sensed, np.array([0.5, 0.0, 0.0]))
        environment.step(torch.as_tensor(controller.action, dtype=torch.float32)[None])
        np.testing.assert_allclose(environment.simulation.batch.ctrl[0], targets, atol=1e-5)  # type: ignore[attr-defined] # the CPU's

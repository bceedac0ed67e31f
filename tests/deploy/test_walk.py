"""The exported robot walks from its files alone, and sees what it saw in training."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.cli import run as command
from etude.cli.export_policy import _failures
from etude.config.robots import ActuatorConfig, CommandConfig, Goal, ResetConfig, RobotConfig, TerrainConfig
from etude.config.validate import to_plain
from etude.deploy import export as exporting
from etude.deploy import walk as walking
from etude.deploy.robot_file import write_robot
from etude.deploy.robot_layout import robot_layout
from etude.environments.make import make_environment
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.deploy.conftest import needs_onnx
from tests.robots.robots import robots

WALK = Path(walking.__file__)
MESHED = """
<mujoco>
  <compiler meshdir="shapes"/>
  <asset><mesh name="hull" file="hull.obj"/></asset>
  <worldbody>
    <body name="trunk" pos="0 0 1">
      <freejoint/>
      <geom type="mesh" mesh="hull"/>
      <body name="arm"><joint name="arm" axis="0 1 0"/><geom type="sphere" size="0.1"/></body>
    </body>
  </worldbody>
</mujoco>
"""
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.fixture
def exported(exports: Callable[[str], exporting.Export]) -> Path:
    return exports("quadruped").folder


def test_what_walks_imports_nothing_of_etude() -> None:
    names = [
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(ast.parse(WALK.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    allowed = {"__future__", "argparse", "json", "math", "pathlib", "typing", "numpy", "mujoco", "onnxruntime"}
    assert {name.split(".")[0] for name in names} <= allowed


@needs_onnx
@pytest.mark.parametrize("history", [1, 3])
def test_it_sees_what_the_task_showed(history: int, quadruped: Run, exported: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    config = open_policy(quadruped, "last").config.environment
    assert config.robot is not None
    terms = {**config.robot.observations["actor"], "joint_velocity": {"scale": 0.5, "clip": 2.0}, "stance_clock": {}}
    terms |= {"base_linear_velocity": {}, "base_height": {}, "dof_pos_ref_diff": {}, "height_scan": {"step": 0.2}}
    task = replace(config.robot, observations={"actor": {**terms, "history": history}})
    environment = make_environment(replace(config, robot=task), num_envs=1)
    robots = environment.base
    metadata = json.loads((exported / "metadata.json").read_text())
    scan = {"height_scan": {"step": 0.2}}
    layout = [{**term, "options": scan.get(term["term"], {})} for term in robots.groups["actor"].layout()]  # type: ignore[attr-defined] # robots
    metadata["robot"]["observations"] = {"actor": layout}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    shutil.copy(exported / "policy.onnx", tmp_path)
    controller = walking.Controller(tmp_path)
    asked = np.array([0.5, 0.0, -0.2])
    robots.commands.fixed = torch.tensor(asked, dtype=torch.float32)  # type: ignore[attr-defined] # robots
    observation, _ = environment.reset([3])
    state = robots.state  # type: ignore[attr-defined] # robots
    generator = torch.Generator().manual_seed(0)
    controller.phase = float(state.memory.phase[0])
    for _ in range(5):
        moved = (state.base_angular_velocity, state.gravity, state.joint_position, state.joint_velocity)
        high = float(state.base_height[0])
        more = (state.base_linear_velocity[0].double().numpy(), high, np.full(9 * 6, high))
        sensed = walking.Sensed(*(value[0].double().numpy() for value in moved), *more)
        seen = controller.observe(sensed, asked)["actor"]
        assert isinstance(observation, torch.Tensor)
        np.testing.assert_allclose(seen, observation.numpy(), atol=1e-5)
        action = torch.rand(1, 12, generator=generator) * 0.4 - 0.2
        controller.action = action[0].numpy()
        controller.phase = (controller.phase + controller.robot["gait"]["hz"] * controller.dt) % 1.0
        observation = environment.step(action).observation
    environment.close()


@needs_onnx
def test_it_walks_where_there_is_no_etude(exported: Path, tmp_path: Path) -> None:
    block = "import sys, runpy; sys.modules['etude'] = sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    words = [str(exported / "walk.py"), str(exported), "--seconds", "0.5", "--command", "0", "0", "0"]
    done = subprocess.run(
        [sys.executable, "-c", block + "runpy.run_path(sys.argv[0], run_name='__main__')", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["seconds"] == pytest.approx(0.5)
    assert report["command"] == [0.0, 0.0, 0.0]
    assert np.isfinite(list(report["velocity"].values())).all()


@needs_onnx
def test_the_command_tells_how_it_walked(
    quadruped: Run, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = (exported / "policy.onnx").read_bytes()
    monkeypatch.setattr(exporting, "onnx_model", lambda *_: contents)  # made once already
    code = command(["export", str(quadruped.path), "--out", str(tmp_path), "--check-walk", "0.4", "--json"])
    walked = json.loads(capsys.readouterr().out)["walk"]
    assert walked["command"] == [0.5, 0.0, 0.0]
    assert code == (1 if walked["falls"] else 0)


@needs_onnx
def test_a_robot_that_falls_is_counted_and_begins_again(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "out")
    data = json.loads((exported / "metadata.json").read_text())
    data["robot"]["fall_height"] = 10.0
    (tmp_path / "out" / "metadata.json").write_text(json.dumps(data))
    report = walking.walk(tmp_path / "out", 0.2)
    assert report["falls"] == 10


@needs_onnx
def test_a_term_that_can_not_be_computed_is_named(exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported / "policy.onnx", tmp_path)
    data = json.loads((exported / "metadata.json").read_text())
    data["robot"]["observations"]["actor"][0]["term"] = "feet_contact"
    (tmp_path / "metadata.json").write_text(json.dumps(data))
    with pytest.raises(walking.WalkError, match="the policy sees 'feet_contact'"):
        walking.Controller(tmp_path)


def test_meshes_are_copied_beside_the_robot(tmp_path: Path) -> None:
    import mujoco

    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "hull.obj").write_text(TETRAHEDRON)
    (tmp_path / "meshed.xml").write_text(MESHED)
    out = tmp_path / "out"
    out.mkdir()
    write_robot(RobotConfig(model=str(tmp_path / "meshed.xml")), out)
    shutil.rmtree(tmp_path / "shapes")
    model = mujoco.MjModel.from_xml_path(str(out / "robot.xml"))  # type: ignore[attr-defined] # without stubs
    assert model.nmesh == 1
    assert [model.actuator(i).name for i in range(model.nu)] == ["arm"]


def test_meshes_lie_beside_a_model_that_lies_deep_in_a_package(tmp_path: Path) -> None:
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "robots" / "shapes").mkdir(parents=True)
    (tmp_path / "robots" / "shapes" / "hull.obj").write_text(TETRAHEDRON)
    (tmp_path / "robots" / "meshed.xml").write_text(MESHED)
    (tmp_path / "robot.yaml").write_text(
        "file: robots/meshed.xml\nbase: trunk\nfeet: []\nheight: 1.0\n"
        "actuators:\n  all: {joints: arm, stiffness: 1, damping: 0.1, action_scale: 0.5}\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    write_robot(RobotConfig(model=str(tmp_path / "robot.yaml")), out)
    assert mujoco.MjModel.from_xml_path(str(out / "robot.xml")).nmesh == 1


@needs_onnx
def test_a_robot_that_only_stands_does_not_walk(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking.Controller, "step", lambda self, sensed, command: self.default)
    walked = walking.walk(exported, 2.0)
    assert walked["falls"] == 0
    assert walked["followed"] < 0.2
    assert "does not walk" in _failures(walked)[0]
    assert _failures({**walked, "seconds": 1.0}) == []  # too short to say


def test_uneven_ground_is_exported_and_scanned_as_it_was_in_training(tmp_path: Path) -> None:
    kinds = {"stairs_up": 1.0, "slope": 1.0, "rough": 1.0}
    scanned = {"actor": {"gravity": {}, "height_scan": {"step": 0.2}}}
    environment = robots(
        1, terrain=TerrainConfig(type="tiles", kinds=kinds, levels=3, columns=3, tile=6.0), observations=scanned
    )
    write_robot(environment.task, tmp_path)
    layout = json.loads(json.dumps(to_plain(robot_layout(environment, ["actor"]))))
    assert [(start["kind"], start["level"]) for start in layout["ground"]][:4] == [
        ("stairs_up", 0), ("slope", 0), ("rough", 0), ("stairs_up", 1),
    ]  # fmt: skip
    robot = walking.SimulatedRobot(tmp_path, layout)
    for start in layout["ground"]:
        robot.place(start["x"] + 1.7, start["y"] - 0.9)
        robot.data.qpos[3:7] = [0.9, 0.0, 0.0, 0.19**0.5]
        heights = robot.sense().heights
        assert heights is not None
        qpos = torch.from_numpy(robot.data.qpos.copy()).float()[None]
        environment.simulation.place(torch.ones(1, dtype=torch.bool), qpos, torch.zeros(1, len(robot.data.qvel)))
        environment.state.refresh()
        expected = environment.groups["actor"].push(environment.state)[0, 3:].numpy()
        np.testing.assert_allclose(np.clip(heights - layout["standing_height"], -1, 1), expected, atol=2e-4)
    robot.place(layout["ground"][0]["x"], layout["ground"][0]["y"])
    assert not robot.has_fallen()
    assert not robot.data.ncon
    for _ in range(40):
        robot.move(np.array([joint["default_position"] for joint in layout["joints"]]))
    assert robot.data.ncon >= 4
    assert abs(robot.sense().base_height - layout["standing_height"]) < 0.03  # type: ignore[operator] # it is known


def test_exported_motors_have_the_curve_of_the_task(tmp_path: Path) -> None:
    curve = ActuatorConfig(stiffness=500, damping=0, effort_limit=20, stall_torque=30, velocity_limit=10)
    environment = robots(1, actuators={"all": curve})
    write_robot(environment.task, tmp_path)
    robot = walking.SimulatedRobot(tmp_path, json.loads(json.dumps(to_plain(robot_layout(environment, ["actor"])))))
    robot.place()
    robot.data.qpos[2] += 1.0
    robot.data.qvel[robot._dofs[1]] = 5.0
    targets = environment.scene.default_pose.copy()
    targets[1] += 1.0
    robot.robot = {**robot.robot, "decimation": 1}
    robot.move(targets)
    assert robot.data.actuator_force[robot._motors[1]] == pytest.approx(15.0)


PLACES = {"goal": "pose", "distance": [0.5, 1.0], "reached": 0.15, "facing": 0.2, "arrival": 0.5, "still_within": 0.75}


@needs_onnx
def test_a_robot_that_goes_to_places_is_sent_to_one_and_one_that_jumps_is_refused(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    data = json.loads((exported / "metadata.json").read_text())
    data["robot"]["commands"] |= PLACES
    (folder / "metadata.json").write_text(json.dumps(data))
    report = walking.walk(folder, 0.2)
    assert (report["goal"], report["command"]) == ("pose", [1.0, 0.0, 0.5])
    (place,) = report["places"]
    assert place["left"] == pytest.approx([1.0, 0.0, 0.5], abs=0.15)  # it has hardly moved
    assert place["followed"] == report["followed"] == pytest.approx(0.0, abs=0.15)
    data["robot"]["commands"]["goal"] = "jump"
    (folder / "metadata.json").write_text(json.dumps(data))
    with pytest.raises(walking.WalkError, match="the policy jumps"):
        walking.walk(folder, 0.2)


@pytest.mark.parametrize("goal", ["velocity", "position", "pose", "jump"])
def test_the_layout_tells_what_commands_are(goal: Goal) -> None:
    layout = robot_layout(robots(1, commands=CommandConfig(goal=goal, distance=(0.5, 1.0))), ["observation"]).commands
    assert layout.goal == goal
    assert (layout.distance, layout.reached is None, layout.height is None) == {
        "velocity": (None, True, True),
        "position": ((0.5, 1.0), False, True),
        "pose": ((0.5, 1.0), False, True),
        "jump": ((0.0, 0.5), True, False),
    }[goal]
    assert (layout.facing is None) == (goal != "pose")


def test_a_place_is_seen_as_the_task_shows_it(tmp_path: Path) -> None:
    environment = robots(1, commands=CommandConfig(goal="pose", standing=0.0), reset=ResetConfig(yaw=3.0))
    write_robot(environment.task, tmp_path)
    plain = walking.SimulatedRobot(tmp_path, to_plain(robot_layout(environment, ["observation"])))
    plain.data.qpos[:] = environment.simulation.qpos[0].numpy()
    goal = np.array([*environment.memory.goal[0].tolist(), float(environment.memory.heading[0])])
    np.testing.assert_allclose(plain.way_to(goal), environment.memory.command[0].numpy(), atol=1e-4)
    np.testing.assert_allclose(plain.way_to(plain.place_of(1.0, 0.5, 0.4)), [1.0, 0.5, 0.4], atol=1e-9)

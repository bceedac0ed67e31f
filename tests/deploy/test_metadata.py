"""metadata.json says what goes in, what comes out and where it came from, and is read back checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etude.deploy.export import Export, export_policy
from etude.deploy.metadata import VERSION, read_metadata
from etude.environments.make import make_environment
from etude.errors import UserError
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.deploy.conftest import PPO
from tests.runs_compared import train


@pytest.fixture
def exported(exports: Callable[[str], Export]) -> Path:
    return exports("quadruped").folder


def test_it_says_where_the_policy_came_from(cartpole: Run, exports: Callable[[str], Export]) -> None:
    stored = open_policy(cartpole, "last")
    found = read_metadata(exports("cartpole").folder)
    assert found == exports("cartpole").metadata
    assert (found.version, found.run, found.checkpoint) == (VERSION, cartpole.id, stored.checkpoint.name)
    assert found.config_hash == cartpole.record["config_hash"]
    assert (found.environment, found.algorithm, found.env_steps) == ("CartPole-v1", "ppo", 128)
    assert found.normalization.startswith("rolling: ")
    (seen,) = found.inputs
    assert (seen.name, seen.shape, seen.dtype) == ("observation", (4,), "float32")
    assert (found.action.kind, found.action.choices, found.action.first) == ("discrete", (2,), (0,))
    assert found.robot is None


def test_a_robots_layout_is_that_of_its_task(quadruped: Run, exported: Path) -> None:
    found = read_metadata(exported)
    task = open_policy(quadruped, "last").config.environment
    environment = make_environment(task, num_envs=1)
    robots = environment.base
    robot = found.robot
    assert robot is not None
    assert task.robot is not None
    assert [joint.name for joint in robot.joints] == list(robots.scene.joints)  # type: ignore[attr-defined] # robots
    assert found.action.labels == tuple(joint.name for joint in robot.joints)
    assert (found.action.low, found.action.high) == ((-1.0,) * 12, (1.0,) * 12)
    thigh = next(joint for joint in robot.joints if joint.name == "FL_thigh")
    assert (thigh.default_position, thigh.action_scale, thigh.stiffness, thigh.damping) == (0.8, 0.5, 30.0, 1.0)
    assert (thigh.effort_limit, thigh.control) == (24.0, "position")
    assert (robot.timestep, robot.decimation) == (task.robot.timestep, task.robot.decimation)
    assert list(robot.observations) == ["actor"]
    assert [term.term for term in robot.observations["actor"]] == list(task.robot.observations["actor"])
    size = sum(term.size * term.history for term in robot.observations["actor"])
    assert found.inputs[0].shape == (size,)
    assert (robot.gait.hz, robot.gait.offsets) == (2.0, (0.0, 0.5, 0.5, 0.0))
    assert robot.commands.forward == task.robot.commands.forward
    assert (robot.fall_tilt, robot.fall_height) == (1.0, 0.12)
    environment.close()


def test_wrappers_are_noted(tmp_path: Path) -> None:
    run = train("Pendulum-v1:ppo", tmp_path / "runs", *PPO, "environment.wrappers=[{id: action_rescale, low: -3, high: 3}]")
    done = export_policy(open_policy(run, "last"), ["torchscript"], tmp_path / "out")
    found = read_metadata(tmp_path / "out")
    assert found.wrappers[0]["id"] == "action_rescale"
    assert found.action.low == (-3.0,)
    assert any("action_rescale" in note for note in done.notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": VERSION + 1}, "newer Etude"),
        ({"version": None}, "no version"),
        ({"colour": "red"}, "colour: unknown key"),
        ({"inputs": [{"name": "actor", "shape": ["many"], "dtype": "float32"}]}, "inputs"),
        ({"action": None}, "action"),
    ],
)
def test_a_wrong_file_is_told(change: dict[str, object], said: str, exported: Path, tmp_path: Path) -> None:
    data = json.loads((exported / "metadata.json").read_text())
    (tmp_path / "metadata.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(UserError, match=said):
        read_metadata(tmp_path)


def test_a_damaged_or_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_metadata(tmp_path)
    (tmp_path / "metadata.json").write_text('{"version": 1, ')
    with pytest.raises(UserError, match="is damaged"):
        read_metadata(tmp_path)


def test_the_robots_file_is_the_robot_that_was_trained(quadruped: Run, exported: Path) -> None:
    import mujoco

    model = mujoco.MjModel.from_xml_path(str(exported / "robot.xml"))  # type: ignore[attr-defined] # without stubs
    environment = make_environment(open_policy(quadruped, "last").config.environment, num_envs=1)
    trained = environment.base.scene.model  # type: ignore[attr-defined] # robots
    for name in ("body_mass", "body_inertia", "jnt_range", "dof_armature", "actuator_gainprm", "actuator_biasprm"):
        np.testing.assert_allclose(getattr(model, name), getattr(trained, name), rtol=1e-4, atol=1e-6, err_msg=name)
    for name in ("actuator_forcerange", "geom_friction", "geom_contype", "geom_conaffinity"):
        np.testing.assert_allclose(getattr(model, name), getattr(trained, name), rtol=1e-4, atol=1e-6, err_msg=name)
    assert model.opt.timestep == trained.opt.timestep
    assert (model.opt.integrator, model.opt.cone, model.opt.iterations) == (
        *(trained.opt.integrator, trained.opt.cone, trained.opt.iterations),
    )
    environment.close()

"""Motors that are networks move robots as those that they were learnt from did, in both simulators; runs keep them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.robots import ActionConfig, ActuatorConfig, ResetConfig, RobotConfig
from etude.config.validate import Validator, to_plain
from etude.deploy.robot_layout import robot_layout
from etude.deploy.walk import SimulatedRobot, WalkError
from etude.errors import EtudeError, UserError
from etude.robots.environment import RobotVector
from etude.robots.models.stored_files import store_robot, use_stored_robot
from etude.robots.motors.network import load_network, save_network
from tests.robots.robots import actions, robots

STIFFNESS, DAMPING = 30.0, 1.0
STILL = ResetConfig(joints=0.1, velocity=0.0)


def write(path: Path, history: tuple[int, ...] = (0, 1), *, step: float = 0.005, late: int = 0) -> Path:
    """Write a network that is an ideal motor, but as late as its history goes back: 4 units that stay all but linear."""
    small, count = 1e-3, len(history)
    first = torch.zeros(4, 2 * count)
    first[0, late], first[1, count + late] = small, small
    last = torch.zeros(1, 4)
    last[0, 0], last[0, 1] = STIFFNESS / small, -DAMPING / small
    weights = {"0.weight": first, "0.bias": torch.zeros(4), "1.weight": last, "1.bias": torch.zeros(1)}
    layout: dict[str, Any] = {
        "step": step, "history": history, "hidden": (4,), "activation": "tanh", "error_scale": 1.0, "velocity_scale": 1.0,
        "torque_scale": 1.0, "largest_torque": 20.0,
    }  # fmt: skip
    save_network(path, layout, weights)
    return path


@pytest.fixture
def motor(tmp_path: Path) -> Path:
    return write(tmp_path / "motor")


def legs(path: Path, **changes: Any) -> dict[str, Any]:
    return {"actuators": {"legs": ActuatorConfig(network=str(path), **changes)}, "reset": STILL, "terminations": {}}


IDEAL = {"actuators": {"legs": ActuatorConfig(stiffness=STIFFNESS, damping=DAMPING, effort_limit=20)}, "reset": STILL,
         "terminations": {}}  # fmt: skip


def run(environment: RobotVector, steps: int = 25, first: int = 0) -> torch.Tensor:
    for seed in range(first, first + steps):
        environment.step(actions(environment, seed, 0.3))
    return environment.simulation.qpos.clone()


def test_a_network_that_is_an_ideal_motor_moves_a_robot_as_one(motor: Path) -> None:
    learnt, ideal = robots(3, **legs(motor)), robots(3, **IDEAL)
    one, other = run(learnt), run(ideal)
    assert float((one - other).abs().max()) < 0.05  # the ideal one's damping is solved with the step, the network's before it
    off = (learnt.simulation.torques - ideal.simulation.torques).square().mean().sqrt()
    assert float(off) < 0.3 * float(ideal.simulation.torques.square().mean().sqrt())


def test_its_torque_is_that_of_its_history_within_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "late", history=(0, 1, 3), late=2)
    environment = robots(1, **legs(path, effort_limit=5.0), decimation=1)
    simulation, scene = environment.simulation, environment.scene
    qpos, dofs = torch.as_tensor(scene.qpos_address), torch.as_tensor(scene.dof_address)
    seen = []
    for seed in range(8):
        seen.append((simulation.qpos[0, qpos].clone(), simulation.qvel[0, dofs].clone()))
        environment.step(actions(environment, seed))
        position, velocity = seen[max(0, seed - 3)]
        target = (
            torch.as_tensor(scene.default_pose)
            + torch.as_tensor(scene.action_scale) * actions(environment, max(0, seed - 3))[0]
        )
        wanted = STIFFNESS * (target - position) - DAMPING * velocity
        torch.testing.assert_close(simulation.torques[0].double(), wanted.double().clamp(-5, 5), atol=2e-2, rtol=0)
    assert float(simulation.torques.abs().max()) <= 5.0


def test_a_history_of_longer_steps_than_the_physics_is_looked_up_at_these(tmp_path: Path) -> None:
    path = write(tmp_path / "slow", history=(0, 1), step=0.01, late=1)
    environment = robots(1, **legs(path), decimation=1)
    simulation, scene = environment.simulation, environment.scene
    qpos, dofs = torch.as_tensor(scene.qpos_address), torch.as_tensor(scene.dof_address)
    seen = []
    for _ in range(5):
        seen.append((simulation.qpos[0, qpos].clone(), simulation.qvel[0, dofs].clone()))
        environment.step(torch.zeros(1, 12))
    position, velocity = seen[-3]
    wanted = STIFFNESS * (torch.as_tensor(scene.default_pose) - position) - DAMPING * velocity
    torch.testing.assert_close(simulation.torques[0].double(), wanted.double(), atol=2e-2, rtol=0)


def test_it_goes_on_as_it_was_with_late_actions_a_curve_and_motors_of_another_kind(motor: Path) -> None:
    mixed: dict[str, Any] = legs(motor) | {
        "actuators": {
            "calves": ActuatorConfig(joints=".*_calf", network=str(motor), effort_limit=20, velocity_limit=15),
            "rest": ActuatorConfig(joints=".*_(hip|thigh)", stiffness=25, effort_limit=20),
        },
        "action": ActionConfig(lag=(0, 6)),
    }
    first, second = robots(4, **mixed), robots(4, **mixed)
    run(first, 8)
    second.load_state_dict(first.state_dict())
    assert torch.equal(run(first, 8, 8), run(second, 8, 8))
    calves = torch.tensor([name.endswith("_calf") for name in first.scene.joints])
    assert first.scene.of_network.tolist() == calves.tolist()


def test_a_robot_that_begins_again_has_no_past(motor: Path) -> None:
    environment = robots(2, **legs(motor))
    run(environment, 6)
    motors = environment.simulation._networks  # type: ignore[attr-defined] # the CPU's
    environment.simulation.place(torch.tensor([True, False]), environment.simulation.qpos, environment.simulation.qvel)
    assert motors._fresh.tolist() == [True, False]
    environment.step(torch.zeros(2, 12))
    assert motors._fresh.tolist() == [False, False]


def test_torque_is_randomised_and_stiffness_is_not(motor: Path) -> None:
    drawn = {"torque": {"range": [0.5, 0.5]}, "stiffness": {"range": [3.0, 3.0]}}
    environment = robots(2, training=True, randomization=drawn, **legs(motor))
    environment.reset([1, 2])
    run(environment, 1)
    gain = environment.simulation.model_field("actuator_gainprm")[..., 0]
    assert torch.allclose(gain, torch.full_like(gain, 0.5))


@pytest.mark.optional
def test_both_simulators_do_the_same(motor: Path) -> None:
    pytest.importorskip("mujoco_warp")
    changes: dict[str, Any] = legs(motor) | {"action": ActionConfig(lag=(0, 3))}
    cpu, warp = (robots(4, training=True, simulator=kind, **changes) for kind in ("cpu", "warp"))
    torch.testing.assert_close(run(warp, 12), run(cpu, 12), atol=1e-4, rtol=0)
    saved = warp.state_dict()
    expected = run(warp, 3, 12)
    warp.load_state_dict(saved)
    assert torch.equal(run(warp, 3, 12), expected)


def test_a_network_that_can_not_be_is_one_clear_line(motor: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"actuators.legs.network=.*absent: there is no absent.json"):
        robots(1, **legs(tmp_path / "absent"))
    with pytest.raises(UserError, match=r"samples every 5 ms, which is no multiple of environment.robot.timestep, 4 ms"):
        robots(1, timestep=0.004, **legs(motor))
    with pytest.raises(UserError, match="is of a motor that holds a position, not control=velocity"):
        Validator().build(ActuatorConfig, {"network": "x", "control": "velocity"}, "actuators.legs")
    described = json.loads((tmp_path / "motor.json").read_text())
    for change, said in (
        ({"hidden": [8]}, "does not have the weights that motor.json says"),
        ({"sha256": "0" * 64}, "is not the file that motor.json was written with"),
        ({"torque_scale": -1}, "is no motor's network: .*torque_scale"),
        ({"version": 9}, "was written by a newer Etude"),
        ({"hiden": [8]}, "is no motor's network: .*hiden"),
    ):
        (tmp_path / "motor.json").write_text(json.dumps(described | change))
        with pytest.raises(UserError, match=said):
            load_network(motor, "network")
    (tmp_path / "motor.json").write_text("[]")
    with pytest.raises(UserError, match="is no motor's network"):
        load_network(motor, "network")


def test_a_run_keeps_its_networks_and_uses_them(motor: Path, tmp_path: Path) -> None:
    task = RobotConfig(model="quadruped", actuators={"legs": ActuatorConfig(network=str(motor))})
    provenance = tmp_path / "provenance"
    provenance.mkdir()
    store_robot(task, provenance)
    again = replace(task)
    assert use_stored_robot(again, provenance) is None
    assert Path(again.networks[str(motor)]) == provenance / "motors" / "0"
    write(motor, history=(0, 2))
    said = use_stored_robot(again, provenance)
    assert said is not None
    assert "networks of motors have changed since" in said
    for file in (motor.with_suffix(".json"), motor.with_suffix(".safetensors")):
        file.unlink()
    assert use_stored_robot(again, provenance) is None
    stored = load_network(Path(again.networks[str(motor)]), "network")
    assert stored.layout.history == (0, 1)
    (provenance / "motors" / "0.safetensors").write_bytes(b"another")
    with pytest.raises(EtudeError, match="is not the file that was stored"):
        use_stored_robot(again, provenance)
    (provenance / "motors.json").write_text('{"networks": {"x": {"number": "../../x", "files": {}}}}')
    with pytest.raises(EtudeError, match="is no note of motors' networks"):
        use_stored_robot(again, provenance)


def test_a_robots_own_yaml_names_networks_beside_it(tmp_path: Path) -> None:
    from etude.robots.models.description import MODELS

    folder = tmp_path / "robot"
    folder.mkdir()
    write(folder / "motor")
    (folder / "quadruped.xml").write_text((MODELS / "quadruped.xml").read_text())
    said = (MODELS / "quadruped.yaml").read_text()
    said = said[: said.index("actuators:")] + "actuators:\n  legs: {joints: .*, network: motor, effort_limit: 20}\n"
    (folder / "dog.yaml").write_text(said)
    environment = robots(1, model=str(folder / "dog.yaml"))
    assert [network.name for network, _ in environment.scene.networks] == ["motor"]
    provenance = tmp_path / "provenance"
    provenance.mkdir()
    task = RobotConfig(model=str(folder / "dog.yaml"))
    store_robot(task, provenance)
    again = replace(task)
    for file in folder.iterdir():
        file.unlink()
    assert use_stored_robot(again, provenance) is None
    assert again.files is not None
    assert again.networks["motor"] == str(provenance / "motors" / "0")


def test_an_export_names_them_and_walking_from_files_is_refused(motor: Path, tmp_path: Path) -> None:
    layout = to_plain(robot_layout(robots(1, **legs(motor)), ["observation"]))
    assert {joint["network"] for joint in layout["joints"]} == {"motor"}
    with pytest.raises(WalkError, match="its motors are networks"):
        SimulatedRobot(tmp_path, layout)


@pytest.mark.parametrize("history", [(0, 900), (0, 10**12)])
def test_a_network_that_would_keep_more_past_than_any_motor_has_is_refused(tmp_path: Path, history: tuple[int, ...]) -> None:
    path = write(tmp_path / "motor", history)
    with pytest.raises(UserError, match=r"looks back further than 2 s|is no motor's network: .*history"):
        load_network(path, "environment.robot.actuators.legs.network")

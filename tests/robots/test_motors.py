"""Motors are as late, and as strong at each speed, as a task says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from etude.config.robots import ActionConfig, ActuatorConfig, ResetConfig
from etude.config.validate import Validator
from etude.errors import UserError
from etude.robots.environment import RobotVector
from tests.robots.robots import actions, robots

STILL = ResetConfig(joints=0.0, velocity=0.0)


def steps_until_it_moves(environment: RobotVector) -> float:
    """How many physics steps pass until motors follow the first action, by their targets in the simulator."""
    substeps: list[np.ndarray] = []
    batch = environment.simulation.batch  # type: ignore[attr-defined] # the CPU's
    plain = batch.step

    def watched() -> None:
        substeps.extend([batch.ctrl[0].copy()] * batch.frame_skip)
        plain()

    batch.step = watched
    environment.step(torch.ones(1, 12))
    for _ in range(4):
        environment.step(torch.zeros(1, 12))
    pose = environment.scene.default_pose
    return next(i for i, ctrl in enumerate(substeps) if not np.allclose(ctrl, pose, atol=1e-4))


@pytest.mark.parametrize("lag", [0, 1, 3, 4, 6, 11])
def test_an_action_takes_effect_after_its_lag_also_beyond_a_control_step(lag: int) -> None:
    assert steps_until_it_moves(robots(1, action=ActionConfig(lag=(lag, lag)), reset=STILL)) == lag


def test_lags_are_drawn_for_each_robot_and_are_part_of_its_state() -> None:
    first, second = (robots(8, action=ActionConfig(lag=(2, 9))) for _ in range(2))
    assert 2 <= int(first._lag_steps.min()) < int(first._lag_steps.max()) <= 9
    for seed in range(5):
        first.step(actions(first, seed))
    second.load_state_dict(first.state_dict())
    for seed in range(5, 10):
        one, two = first.step(actions(first, seed)), second.step(actions(second, seed))
        assert torch.equal(one.observation, two.observation)  # type: ignore[arg-type] # one group


def test_a_motor_pushes_less_the_faster_it_turns_and_brakes_with_all_it_has() -> None:
    curve = ActuatorConfig(stiffness=500, damping=0, effort_limit=20, stall_torque=30, velocity_limit=10)
    environment = robots(1, actuators={"all": curve}, reset=STILL, terminations={})
    simulation, scene = environment.simulation, environment.scene
    joint = scene.joints.index("FL_thigh")
    for speed, target, torque in (
        (0.0, 1.0, 20.0),
        (5.0, 1.0, 15.0),
        (12.0, 1.0, 0.0),
        (8.0, -1.0, -20.0),
        (-5.0, -1.0, -15.0),
    ):
        qpos, qvel = environment._place_nominal[0].clone()[None], torch.zeros(1, scene.model.nv)
        qpos[0, 2] += 1.0
        qvel[0, scene.dof_address[joint]] = speed
        simulation.place(torch.ones(1, dtype=torch.bool), qpos, qvel)
        aim = torch.as_tensor(scene.default_pose, dtype=torch.float32)[None].clone()
        aim[0, joint] += target
        simulation.step(aim, 1)
        assert float(simulation.torques[0, joint]) == pytest.approx(torque, abs=1e-3)


def test_motors_without_a_curve_keep_their_range_beside_those_with_one() -> None:
    curve = ActuatorConfig(joints=".*_calf", effort_limit=20, velocity_limit=10)
    environment = robots(2, actuators={"calves": curve, "rest": ActuatorConfig(joints=".*_(hip|thigh)", effort_limit=7)})
    for seed in range(5):
        environment.step(actions(environment, seed, 5.0))
    ranges = environment.simulation.model_field("actuator_forcerange").numpy()
    thighs = [i for i, name in enumerate(environment.scene.joints) if not name.endswith("_calf")]
    assert np.all(ranges[:, thighs] == [-7.0, 7.0])


@pytest.mark.parametrize("given", [{"velocity_limit": 10}, {"stall_torque": 10, "effort_limit": 5}])
def test_half_a_curve_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(UserError, match="needs"):
        Validator().build(ActuatorConfig, given, "environment.robot.actuators.all")

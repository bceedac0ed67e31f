"""Terms whose price depends on what the robot is asked for, and what its motors and feet tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from etude.config.robots import ResetConfig, SolverConfig
from etude.errors import UserError
from etude.robots.environment import RobotVector
from etude.robots.models.description import MODELS
from etude.robots.terms.observations import OBSERVATIONS
from etude.robots.terms.rewards import REWARDS
from tests.robots.robots import actions, rest, robots


@pytest.fixture(scope="module")
def moving() -> RobotVector:
    environment = robots(6, training=True, randomization={"motor_offset": {"range": [-0.1, 0.1]}})
    for seed in range(12):
        environment.step(actions(environment, seed, 0.5))
    return environment


def value(environment: RobotVector, name: str, **options: object) -> torch.Tensor:
    environment.state.refresh()
    return REWARDS.bind(name, options, "rewards")(environment.state)


def seen(environment: RobotVector, name: str) -> torch.Tensor:
    environment.state.refresh()
    return OBSERVATIONS.bind(name, {}, "observations")(environment.state)


def test_tracking_can_count_what_was_not_asked_for(moving: RobotVector) -> None:
    state = moving.state
    state.refresh()
    moving.memory.command[:, :2] = state.base_linear_velocity[:, :2]
    moving.memory.command[:, 2] = state.base_angular_velocity[:, 2]
    rise, tilt = state.base_linear_velocity[:, 2].square(), state.base_angular_velocity[:, :2].square().sum(1)
    assert bool((rise > 0).all())
    assert torch.allclose(value(moving, "track_linear_velocity", width=0.5, vertical=2.0), torch.exp(-2 * rise / 0.25))
    assert torch.allclose(value(moving, "track_turn", width=2.0, tilt=1.0), torch.exp(-tilt / 4.0))


def test_the_pose_may_differ_more_the_faster_a_robot_is_asked_to_go(moving: RobotVector) -> None:
    widths = {"standing": {".*": 0.05}, "walking": {".*_calf": 0.6, ".*_(hip|thigh)": 0.3}, "running": {".*_hip": 2.0}}
    moving.memory.command[:] = torch.tensor(
        [[0.0, 0.0, 0.0], [0.03, 0.0, 0.01], [0.5, 0.0, 0.0], [0.0, 0.0, 0.3], [1, 1, 1], [2, 0, 0]]
    )
    found = value(moving, "pose_by_speed", **widths)
    off = moving.state.joint_position - moving.state.default_pose
    leg = {"standing": [0.05, 0.05, 0.05], "walking": [0.3, 0.3, 0.6], "running": [2.0, 0.5, 0.5]}
    asked = ["standing", "standing", "walking", "walking", "running", "running"]
    width = torch.tensor([leg[name] * 4 for name in asked])
    assert torch.allclose(found, torch.exp(-(off / width).square().mean(1)), rtol=1e-4)


def test_a_pose_of_a_joint_that_is_not_there_is_an_error(moving: RobotVector) -> None:
    with pytest.raises(UserError, match=r"pose_by_speed: nothing is called 'elbow'"):
        value(moving, "pose_by_speed", walking={"elbow": 0.3})


@pytest.mark.parametrize("name", ["feet_slip", "feet_clearance"])
def test_what_feet_do_while_asked_to_stand_may_count_less(name: str, moving: RobotVector) -> None:
    moving.memory.command[:] = 0.0
    moving.memory.command[:3, 0] = 1.0
    whole, share = value(moving, name), value(moving, name, standing=0.25)
    assert torch.equal(share[:3], whole[:3])
    assert torch.allclose(share[3:], 0.25 * whole[3:])


def test_one_foot_on_the_ground_is_paid_and_flight_costs(moving: RobotVector) -> None:
    moving.state.refresh()
    standing = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    moving.state.__dict__["feet_in_contact"] = standing
    assert REWARDS.bind("no_fly", {}, "rewards")(moving.state).tolist() == [1, -1, 0, 1, 0, -1]
    moving.state.refresh()


def test_landing_costs_the_force_of_feet_that_touch_down_in_this_step() -> None:
    environment = robots(2, reset=ResetConfig(joints=0.0, velocity=0.0))
    environment.memory.command[:] = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    environment.commands.fixed = environment.memory.command.clone()
    costs = []
    for _ in range(40):
        rest(environment, 1)
        costs.append(value(environment, "landing_force").clone())
        force = (environment.state.feet_force.norm(dim=-1) * environment.memory.landed).sum(-1)
        assert torch.equal(costs[-1], force * torch.tensor([1.0, 0.0]))  # who is asked to stand may land as it likes
    assert float(torch.stack(costs)[:, 0].max()) > 10.0
    assert float(costs[-1][0]) == 0.0  # standing is no landing


def test_motors_measure_positions_off_by_their_offset(moving: RobotVector) -> None:
    offset = moving.state.drawn["motor_offset"]
    assert bool((offset != 0).all())
    assert torch.equal(seen(moving, "joint_position") - offset, seen(moving, "joint_position_measured"))
    exact = robots(2)
    assert torch.equal(seen(exact, "joint_position"), seen(exact, "joint_position_measured"))


def test_the_log_of_a_force_has_its_sign(moving: RobotVector) -> None:
    force, log = seen(moving, "feet_force"), seen(moving, "feet_force_log")
    assert bool((force < 0).any())
    assert torch.allclose(log.sign() * log.abs().expm1(), force, rtol=1e-4, atol=1e-4)


def model_with_deciding_feet(folder: Path) -> str:
    xml = (MODELS / "quadruped.xml").read_text()
    (folder / "quadruped.xml").write_text(xml.replace('class="foot" ', 'class="foot" priority="2" '))
    (folder / "robot.yaml").write_text((MODELS / "quadruped.yaml").read_text())
    return str(folder / "robot.yaml")


def test_feet_that_decide_have_a_friction_of_their_own_beside_the_grounds(tmp_path: Path) -> None:
    wanted = {"feet_friction": {"range": [0.3, 0.6]}, "floor_friction": {"range": [0.9, 1.0]}}
    environment = robots(50, training=True, model=model_with_deciding_feet(tmp_path), randomization=wanted)
    friction = environment.simulation.model_field("geom_friction")[..., 0].float()
    model = environment.scene.model
    feet = [model.geom(foot).id for foot in environment.scene.feet]
    assert torch.allclose(friction[:, feet], environment.state.drawn["feet_friction"].expand(-1, 4))
    assert torch.allclose(friction[:, [model.geom("floor").id]], environment.state.drawn["floor_friction"])
    assert 0.3 <= float(friction[:, feet].min()) < float(friction[:, feet].max()) <= 0.6


def test_feet_that_don_t_decide_can_t_be_given_a_friction() -> None:
    with pytest.raises(UserError, match=r"feet_friction.*use floor_friction"):
        robots(2, training=True, randomization={"feet_friction": {"range": [0.3, 0.6]}})


def test_impratio_reaches_the_simulator() -> None:
    environment = robots(2, solver=SolverConfig(cone="elliptic", impratio=10.0))
    assert environment.scene.model.opt.impratio == 10.0


def test_legs_follow_the_stride_in_their_swing_and_the_pose_in_their_stance() -> None:
    environment = robots(2, model="biped", reset=ResetConfig(joints=0.0), observations={"actor": {"dof_pos_ref_diff": {}}})
    state, joints = environment.state, environment.scene.joints
    environment.memory.command[:] = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    environment.memory.phase[:] = 0.75  # the left foot is at the height of its swing
    state.refresh()
    off = {joint: state.reference_pose[:, i] - state.default_pose[i] for i, joint in enumerate(joints)}
    assert off["L_knee"].tolist() == pytest.approx([0.6, 0.0])
    assert off["L_hip_pitch"].tolist() == pytest.approx([-0.3, 0.0])
    assert all(float(off[joint].abs().max()) == 0 for joint in joints if joint.startswith("R_") or joint == "L_hip_yaw")
    term = REWARDS.bind("dof_ref_pos_diff", {}, "")
    away = float((state.joint_position[0] - state.reference_pose[0]).norm())
    assert float(term(state)[0]) == pytest.approx(math.exp(-2 * away) - 0.2 * min(away, 0.5))
    assert float(term(state)[1]) == pytest.approx(1.0, abs=1e-3)


def test_knees_are_as_far_apart_as_hips_and_paid_for_it() -> None:
    environment = robots(2, model="biped", reset=ResetConfig(joints=0.0))
    knees = environment.state.knees_position
    assert float((knees[:, 0] - knees[:, 1]).norm(dim=-1).max()) == pytest.approx(0.18, abs=0.01)
    paid = [float(REWARDS.bind("knee_distance", {"low": low}, "")(environment.state)[0]) for low in (0.1, 0.25)]
    assert paid[0] == pytest.approx(1.0)
    assert paid[1] == pytest.approx(0.5, abs=0.01)

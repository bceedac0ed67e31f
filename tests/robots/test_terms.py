"""Terms are what their formulas say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from etude.config.robots import CommandConfig, MotionConfig, ResetConfig
from etude.robots.environment import RobotVector
from etude.robots.rotations import euler_of, from_yaw, rotate, rotate_inverse, wrap, yaw_of
from etude.robots.terms.observations import OBSERVATIONS
from etude.robots.terms.rewards import REWARDS
from etude.robots.terms.terminations import TERMINATIONS
from tests.robots.robots import actions, rest, robots

BODIES = {"collisions": {"bodies": ("base",)}, "contact": {"bodies": ("base",)}}


@pytest.fixture(scope="module")
def moving() -> RobotVector:
    environment = robots(6, training=True, rewards={"collisions": {"weight": 1.0, "bodies": ["base", ".*_calf"]}})
    for seed in range(12):
        environment.step(actions(environment, seed, 0.5))
    return environment


MOTIONS = [name for name in REWARDS.terms if name.startswith("motion_")]
JUMPS = [name for name in REWARDS.terms if name.startswith("jump_")]


def value(environment: RobotVector, name: str, **options: object) -> torch.Tensor:
    environment.state.refresh()
    return REWARDS.bind(name, {**BODIES.get(name, {}), **options}, "rewards")(environment.state)


@pytest.mark.parametrize("name", sorted(REWARDS.terms))
def test_a_reward_is_one_finite_number_a_robot(name: str, moving: RobotVector) -> None:
    others: dict[str, Any] = {
        "knee_distance": {"model": "biped"},
        **{key: {"motion": MotionConfig(file="trot")} for key in MOTIONS},
        **{key: {"commands": CommandConfig(goal="jump")} for key in JUMPS},
        "facing_goal": {"commands": CommandConfig(goal="pose")},
    }
    found = value(robots(6, **others[name]) if name in others else moving, name)
    assert found.shape == (6,)
    assert bool(torch.isfinite(found).all())
    assert REWARDS.describe()[name]


@pytest.mark.parametrize("name", sorted(OBSERVATIONS.terms))
def test_an_observation_is_a_row_a_robot(name: str, moving: RobotVector) -> None:
    others: dict[str, Any] = {
        "motion_pose": {"motion": MotionConfig(file="trot")},
        "jump_clock": {"commands": CommandConfig(goal="jump")},
    }
    environment = robots(6, **others[name]) if name in others else moving
    environment.state.refresh()
    found = OBSERVATIONS.bind(name, {}, "observations")(environment.state)
    assert found.ndim == 2
    assert len(found) == 6
    assert bool(torch.isfinite(found.float()).all())
    assert OBSERVATIONS.describe()[name]


@pytest.mark.parametrize("name", sorted(TERMINATIONS.terms))
def test_a_termination_is_a_truth_a_robot(name: str, moving: RobotVector) -> None:
    moving.state.refresh()
    found = TERMINATIONS.bind(name, BODIES.get(name, {}), "terminations")(moving.state)
    assert (found.shape, found.dtype) == ((6,), torch.bool)


def test_tracking_is_one_at_the_command_and_falls_as_a_bell(moving: RobotVector) -> None:
    state = moving.state
    state.refresh()
    velocity = state.base_linear_velocity
    moving.memory.command[:, :2] = velocity[:, :2]
    moving.memory.command[:, 2] = state.base_angular_velocity[:, 2]
    assert torch.allclose(value(moving, "track_linear_velocity"), torch.ones(6))
    assert torch.allclose(value(moving, "track_turn"), torch.ones(6))
    moving.memory.command[:, 0] += 0.5
    expected = torch.full((6,), math.exp(-0.25 / 0.25))
    assert torch.allclose(value(moving, "track_linear_velocity", width=0.5), expected, atol=1e-5)


def test_sums_of_squares_are_the_simulators_own_numbers(moving: RobotVector) -> None:
    simulation = moving.simulation.batch  # type: ignore[attr-defined]
    force = torch.from_numpy(simulation.field("actuator_force").copy()).float()
    speed = torch.from_numpy(simulation.qvel[:, 6:].copy()).float()
    assert torch.allclose(value(moving, "torques"), force.square().sum(1), rtol=1e-4)
    assert torch.allclose(value(moving, "joint_velocity"), speed.square().sum(1), rtol=1e-4)
    assert torch.allclose(value(moving, "energy"), (force * speed).abs().sum(1), rtol=1e-4)


def test_action_terms_are_differences_of_the_last_actions(moving: RobotVector) -> None:
    last = [actions(moving, seed, 0.5) for seed in (9, 10, 11)]
    rate = (last[2] - last[1]).square().sum(1)
    assert torch.allclose(value(moving, "action_rate"), rate)
    bend = (last[2] - 2 * last[1] + last[0]).square().sum(1)
    assert torch.allclose(value(moving, "action_smoothness"), bend + rate + 0.05 * last[2].abs().sum(1))


def test_the_gait_pays_for_feet_that_stand_and_swing_by_the_clock() -> None:
    environment = robots(4, reset=ResetConfig(joints=0.0, velocity=0.0))
    rest(environment, 60)
    environment.memory.command[:] = 0.0
    assert torch.allclose(value(environment, "gait"), torch.ones(4), atol=0.05)  # asked to stand, and all feet do
    environment.memory.command[:, 0] = 1.0
    environment.memory.phase[:] = 0.25
    assert torch.allclose(value(environment, "gait"), torch.full((4,), 0.5), atol=0.05)  # one pair should be in the air
    environment.state.refresh()
    assert environment.state.feet_should_stand[0].tolist() == [True, False, False, True]


def test_feet_tell_how_long_they_were_in_the_air_and_how_high() -> None:
    environment = robots(1, reset=ResetConfig(joints=0.0, velocity=0.0, position=0.0))
    rest(environment, 40)
    simulation = environment.simulation.batch  # type: ignore[attr-defined]
    simulation.qpos[0, 2] += 0.3  # lifted off the ground, then falling
    heights, steps = [], 0
    while steps < 2 or not bool(environment.memory.landed.any()):
        rest(environment, 1)
        heights.append(float(environment.state.feet_height.max()))
        steps += 1
    fall = math.sqrt(2 * 0.3 / 9.81)
    assert float(environment.memory.last_air_time.max()) == pytest.approx(fall, abs=0.05)
    assert float(environment.memory.last_peak_height.max()) == pytest.approx(max(heights), abs=0.02)


def test_commands_lie_in_their_ranges_and_some_ask_to_stand() -> None:
    config = CommandConfig(forward=(0.2, 0.8), sideways=(-0.1, 0.1), turn=(0.5, 0.6), standing=0.25, every_s=(1.0, 2.0))
    environment = robots(400, commands=config)
    command = environment.memory.command
    standing = (command == 0).all(1)
    assert float(standing.float().mean()) == pytest.approx(0.25, abs=0.08)
    moving = command[~standing]
    for column, (low, high) in enumerate((config.forward, config.sideways, config.turn)):
        assert low <= float(moving[:, column].min())
        assert float(moving[:, column].max()) <= high
    left = environment.memory.command_left
    assert bool(((left >= 1.0) & (left <= 2.0)).all())


def test_a_heading_is_turned_to() -> None:
    environment = robots(50, commands=CommandConfig(heading=1.0, standing=0.0, turn=(-1.0, 1.0)))
    rest(environment, 1)
    environment.state.refresh()
    error = wrap(environment.memory.heading - environment.state.yaw)
    assert torch.allclose(environment.memory.command[:, 2], (0.5 * error).clamp(-1, 1), atol=0.02)


def test_rotations_agree_with_one_another() -> None:
    generator = torch.Generator().manual_seed(0)
    quaternion = torch.nn.functional.normalize(torch.randn(20, 4, generator=generator), dim=-1)
    vector = torch.randn(20, 3, generator=generator)
    assert torch.allclose(rotate_inverse(quaternion, rotate(quaternion, vector)), vector, atol=1e-5)
    yaw = torch.linspace(-3, 3, 20)
    assert torch.allclose(yaw_of(from_yaw(yaw)), yaw, atol=1e-5)
    assert torch.allclose(euler_of(from_yaw(yaw))[:, 2], yaw, atol=1e-5)
    assert torch.allclose(
        rotate(from_yaw(torch.tensor([math.pi / 2])), torch.tensor([[1.0, 0, 0]])), torch.tensor([[0.0, 1, 0]]), atol=1e-6
    )

"""Robots keep the contract of every vector environment: exact states, ends told apart, observations where steps led."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.config.robots import ActionConfig, CommandConfig, ResetConfig
from etude.environments.vector import Step
from etude.errors import EtudeError
from etude.robots.environment import RobotVector
from tests.robots.robots import SEEN, actions, rest, robots

EVERYTHING: dict[str, Any] = {
    "observations": {
        "actor": {**SEEN, "joint_velocity": {"noise": 1.0, "history": 3}, "action": {"lag": [0, 2]}, "gait_phase": {}},
        "critic": {"base_linear_velocity": {}, "feet_contact": {}, "randomized": {"name": "floor_friction"}},
    },
    "rewards": {"track_linear_velocity": 1.0, "gait": 1.0, "collisions": {"weight": -1.0, "bodies": [".*_thigh"]}},
    "terminations": {"tilt": {"limit": 0.5}, "contact": {"bodies": "base"}, "unstable": {}},
    "randomization": {
        "floor_friction": {"range": [0.4, 1.2]},
        "base_mass": {"range": [-1.0, 1.0]},
        "stiffness": {"range": [0.8, 1.2]},
        "motor_offset": {"range": [-0.02, 0.02]},
        "push": {"every_s": [0.1, 0.3], "linear": 1.0, "angular": 1.0},
    },
    "action": ActionConfig(lag=(0, 2)),
    "commands": CommandConfig(every_s=(0.1, 0.4), heading=0.5),
}


def run(environment: RobotVector, first: int, count: int) -> list[Step]:
    return [environment.step(actions(environment, seed)) for seed in range(first, first + count)]


def same(left: Step, right: Step) -> bool:
    def equal(one: Any, other: Any) -> bool:
        return all(equal(one[key], other[key]) for key in one) if isinstance(one, dict) else bool(torch.equal(one, other))

    return all(equal(one, other) for one, other in zip(left, right, strict=True))


def test_a_restored_state_goes_on_bit_for_bit_amid_episodes_lags_pushes_and_commands() -> None:
    whole = robots(16, training=True, steps=30, **EVERYTHING)
    run(whole, 0, 23)
    saved = whole.state_dict()
    expected = run(whole, 23, 40)
    assert any(bool(step.terminated.any()) for step in expected)
    assert any(bool(step.truncated.any()) for step in expected)
    other = robots(16, training=True, steps=30, **EVERYTHING)
    run(other, 100, 7)
    other.load_state_dict(saved)
    assert all(same(one, two) for one, two in zip(expected, run(other, 23, 40), strict=True))


def test_the_same_seeds_give_the_same_robots_and_others_others() -> None:
    first, again, others = (robots(4, training=True, **EVERYTHING) for _ in range(3))
    others.reset([1, 2, 3, 5])
    trajectories = [run(environment, 0, 10) for environment in (first, again, others)]
    assert all(same(one, two) for one, two in zip(trajectories[0], trajectories[1], strict=True))
    assert not same(trajectories[0][-1], trajectories[2][-1])


def test_a_time_limit_truncates_and_a_fall_terminates() -> None:
    environment = robots(4, steps=5)
    steps = [rest(environment, 1) for _ in range(5)]
    assert not any(bool(step.truncated.any()) for step in steps[:4])
    assert bool(steps[4].truncated.all())
    assert not bool(steps[4].terminated.any())
    assert torch.equal(environment.memory.age, torch.zeros(4, dtype=torch.int64))
    fallen = robots(4, terminations={"low": {"height": 0.2}})
    fallen.simulation.batch.qpos[:, 2] = 0.05  # type: ignore[attr-defined] # the CPU's
    step = rest(fallen, 1)
    assert bool(step.terminated.all())
    assert not bool(step.truncated.any())


def test_the_final_observation_is_where_the_step_led_and_the_next_one_begins_anew() -> None:
    environment = robots(
        4, steps=5, observations={"actor": {"joint_position": {}}}, reset=ResetConfig(joints=0.0, velocity=0.0)
    )
    for _ in range(4):
        environment.step(torch.ones(4, 12))
    step = environment.step(torch.ones(4, 12))
    assert isinstance(step.final_observation, torch.Tensor)
    assert isinstance(step.observation, torch.Tensor)
    assert float(step.final_observation.abs().amin(1).amin()) > 0.01  # every joint has moved
    assert torch.allclose(step.observation, torch.zeros(4, 12))
    going_on = environment.step(torch.zeros(4, 12))
    assert going_on.observation is going_on.final_observation


def test_a_robot_that_holds_its_pose_stands_at_its_height() -> None:
    environment = robots(8, reset=ResetConfig(velocity=0.0, joints=0.0))
    rest(environment, 100)
    assert not bool(environment.state.fell.any())
    assert torch.allclose(environment.state.base_height, torch.tensor(environment.description.height), atol=0.03)
    assert bool(environment.state.feet_in_contact.all())
    weight = environment.state.feet_force.norm(dim=-1).sum(1)
    assert torch.allclose(weight, torch.tensor(float(environment.scene.model.body_mass.sum()) * 9.81), rtol=0.05)


def test_noise_lag_and_randomisation_are_for_training_alone() -> None:
    environment = robots(4, training=False, **EVERYTHING)
    assert environment.randomizations == []
    assert environment.groups["actor"]._noise is None
    assert environment.groups["actor"]._lags is None
    trained = robots(4, training=True, **EVERYTHING)
    assert len(trained.randomizations) == 5
    assert trained.groups["actor"]._noise is not None


def test_history_shows_the_oldest_first_and_begins_with_the_first_observation() -> None:
    seen = {"actor": {"action": {"history": 3}}}
    environment = robots(2, observations=seen)
    marks = [torch.full((2, 12), value) for value in (0.1, 0.2, 0.3)]
    observations = [environment.step(mark).observation for mark in marks]
    frames = observations[-1].view(2, 3, 12)  # type: ignore[union-attr]
    assert torch.allclose(frames[0, :, 0], torch.tensor([0.1, 0.2, 0.3]))
    assert torch.allclose(observations[0].view(2, 3, 12)[0, :, 0], torch.tensor([0.0, 0.0, 0.1]))  # type: ignore[union-attr]


def test_a_lagging_term_shows_what_was_so_many_steps_ago() -> None:
    environment = robots(2, training=True, observations={"actor": {"action": {"lag": [2, 2]}, "joint_position": {}}})
    seen = [environment.step(torch.full((2, 12), value)).observation for value in (0.1, 0.2, 0.3, 0.4)]
    assert [round(float(each[0, 0]), 3) for each in seen] == [0.0, 0.0, 0.1, 0.2]  # type: ignore[index]


def test_a_late_action_moves_the_joints_later() -> None:
    def moved(lag: tuple[float, float]) -> float:
        environment = robots(1, action=ActionConfig(lag=lag), reset=ResetConfig(joints=0.0, velocity=0.0))
        environment.step(torch.ones(1, 12))
        return float((environment.state.joint_position - environment.state.default_pose).abs().sum())

    assert moved((0, 0)) > moved((1, 1)) > moved((3, 3))


def test_each_reward_term_is_told_and_they_add_up() -> None:
    environment = robots(4, rewards={"track_linear_velocity": 1.0, "pose": 0.5, "torques": -1e-3, "energy": 0.0, "gait": None})
    step = rest(environment, 3)
    terms = {name: value for name, value in step.info.items() if name.startswith("reward/")}
    assert set(terms) == {"reward/track_linear_velocity", "reward/pose", "reward/torques"}
    assert torch.allclose(torch.stack([*terms.values()]).sum(0), step.reward)


def test_only_positive_rewards_leave_the_price_of_a_fall() -> None:
    priced = {"torques": -1.0, "termination": -2.0}
    environment = robots(
        4, rewards=priced, only_positive_rewards=True, scale_rewards_by_dt=False, terminations={"low": {"height": 0.2}}
    )
    environment.simulation.batch.qpos[:, 2] = 0.05  # type: ignore[attr-defined] # the CPU's
    assert torch.equal(rest(environment, 1).reward, torch.full((4,), -2.0))


def blow_up(environment: RobotVector) -> None:
    environment.simulation.batch.qvel[2, :3] = float("nan")  # type: ignore[attr-defined] # the CPU's


def test_a_robot_that_blows_up_is_named() -> None:
    environment = robots(4)
    blow_up(environment)
    with pytest.raises(EtudeError, match=r"robot 2 has become unstable 1 steps into its episode .* termination `unstable`"):
        rest(environment, 1)


def test_a_robot_that_blows_up_ends_its_episode_where_the_task_says_so_and_begins_a_sound_one() -> None:
    priced = {"track_linear_velocity": 1.0, "torques": -1.0, "termination": -2.0}
    environment = robots(4, terminations={"unstable": {}}, rewards=priced, scale_rewards_by_dt=False)
    blow_up(environment)
    step = rest(environment, 1)
    assert step.terminated.tolist() == [False, False, True, False]
    assert float(step.reward[2]) == -2.0
    assert step.info["unstable"].tolist() == [0.0, 0.0, 1.0, 0.0]
    for observation in (step.observation, step.final_observation, rest(environment, 20).observation):
        assert bool(torch.isfinite(observation).all())  # type: ignore[arg-type] # one group
    assert not bool(environment.state.fell.any())

"""Robots that are asked to be somewhere, headed somehow, and not to be fast."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from etude.config.robots import CommandConfig, JumpConfig, ResetConfig, TerrainConfig
from etude.config.validate import Validator
from etude.errors import UserError
from etude.robots.driving.driving import Ask, Driver, GoalDriver, Press, Stick, driver_of
from etude.robots.goals import heading_error
from etude.robots.rotations import from_yaw
from etude.robots.trial import run_trial, usual_scripts
from tests.robots.robots import actions, rest, robots

GOTO = CommandConfig(goal="position", distance=(1.0, 2.0), standing=0.0, every_s=(100.0, 100.0))


def test_a_place_stays_where_it_is_while_the_robot_sees_it_from_where_it_is() -> None:
    environment = robots(6, commands=GOTO, rewards={"at_goal": 1.0, "approach": 1.0}, reset=ResetConfig(yaw=3.0))
    state, memory = environment.state, environment.memory
    goal = memory.goal.clone()
    distance = (goal - state.base_position[:, :2]).norm(dim=-1)
    assert bool(((distance >= 0.99) & (distance <= 2.01)).all())
    for _ in range(20):
        environment.step(actions(environment))
    state.refresh()
    assert torch.equal(memory.goal, goal)
    x, y = memory.command[:, 0], memory.command[:, 1]
    cos, sin = state.yaw.cos(), state.yaw.sin()
    seen = state.base_position[:, :2] + torch.stack([cos * x - sin * y, sin * x + cos * y], 1)
    assert torch.allclose(seen, goal, atol=1e-4)


def test_who_is_there_is_asked_to_stand_and_paid_for_it() -> None:
    environment = robots(2, commands=GOTO, rewards={"at_goal": 1.0, "approach": 1.0}, scale_rewards_by_dt=False)
    environment.memory.goal.copy_(environment.state.base_position[:, :2])
    environment.memory.goal[1, 0] += 1.0
    step = rest(environment, 2)
    assert environment.memory.command[0].tolist() == [0.0, 0.0, 0.0]
    assert environment.state.is_asked_to_move.tolist() == [False, True]
    assert float(step.info["reward/approach"][0]) == 1.0
    assert float(step.info["reward/at_goal"][0]) == 1.0
    assert float(step.info["reward/at_goal"][1]) == pytest.approx(math.exp(-4), rel=0.2)
    assert float(step.info["reward/approach"][1]) < 0.5


def test_a_goal_is_0_well_within_its_tolerance_so_that_who_stops_is_there() -> None:
    environment = robots(3, commands=replace(GOTO, reached=0.2), rewards={"at_goal": 1.0}, reset=ResetConfig(velocity=0.0))
    environment.memory.goal.copy_(environment.state.base_position[:, :2])
    environment.memory.goal[:, 0] += torch.tensor([0.12, 0.18, 0.25])
    rest(environment, 1)
    assert environment.state.is_asked_to_move.tolist() == [False, True, True]


def test_levels_of_velocities_are_refused() -> None:
    with pytest.raises(UserError, match=r"terrain\.curriculum=true: goes by velocities"):
        robots(commands=GOTO, terrain=TerrainConfig(type="tiles"))
    with pytest.raises(ValueError, match="goal=position: levels=3 are of velocities"):
        CommandConfig(goal="position", levels=3)


POSE = CommandConfig(goal="pose", distance=(1.0, 2.0), standing=0.0, every_s=(100.0, 100.0))
PAID = {"at_goal": 1.0, "approach": 1.0, "facing_goal": 1.0}


def test_a_pose_is_a_place_and_how_far_to_turn_left_there() -> None:
    environment = robots(6, commands=replace(POSE, facing=1e-4), rewards=PAID, reset=ResetConfig(yaw=3.0))
    state, memory = environment.state, environment.memory
    goal, heading = memory.goal.clone(), memory.heading.clone()
    for _ in range(20):
        environment.step(actions(environment))
    state.refresh()
    assert torch.equal(memory.goal, goal)
    assert torch.equal(memory.heading, heading)
    turned = state.yaw + memory.command[:, 2]
    assert torch.allclose(turned.cos(), heading.cos(), atol=1e-4)
    assert torch.allclose(turned.sin(), heading.sin(), atol=1e-4)
    assert float(memory.command[:, 2].abs().max()) <= math.pi


def test_a_pose_is_taken_by_who_is_there_and_faces_the_right_way() -> None:
    environment = robots(3, commands=POSE, rewards=PAID, scale_rewards_by_dt=False)
    state, memory = environment.state, environment.memory
    memory.goal.copy_(state.base_position[:, :2])
    memory.heading.copy_(state.yaw + torch.tensor([0.05, 1.0, 0.05]))
    memory.goal[2, 0] += 1.0
    step = rest(environment, 2)
    assert state.is_asked_to_move.tolist() == [False, True, True]
    assert memory.command[0].tolist() == [0.0, 0.0, 0.0]
    assert memory.command[1].tolist()[:2] == [0.0, 0.0]
    facing = step.info["reward/facing_goal"].tolist()
    assert facing[0] == 1.0
    assert facing[1] == pytest.approx(math.exp(-4), rel=0.2)
    assert facing[2] == pytest.approx(math.exp(-1), rel=0.2)  # far from the place it hardly matters yet
    assert float(step.info["error/heading"][1]) == pytest.approx(1.0, abs=0.1)


def test_headings_of_poses_are_as_near_as_the_task_says() -> None:
    near = CommandConfig(goal="pose", arrival=0.3, standing=0.0)
    environment = robots(64, commands=near, reset=ResetConfig(yaw=3.0))
    assert 0.1 < float(heading_error(environment.state).abs().max()) <= 0.3 + 1e-5


def test_a_goal_that_is_asked_for_is_seen_from_where_the_robot_is_and_asked_again_after_a_fall() -> None:
    environment = robots(2, commands=POSE, reset=ResetConfig(yaw=3.0), terminations={"low": {"height": 0.2}})
    environment.commands.ask(torch.tensor([1.0, 0.5, 0.4]))
    rest(environment, 1)
    assert torch.allclose(environment.memory.command, torch.tensor([1.0, 0.5, 0.4]).expand(2, 3), atol=0.02)
    environment.simulation.batch.qpos[0, 2] = 0.1  # type: ignore[attr-defined] # falls, and begins again
    assert rest(environment, 1).terminated.tolist() == [True, False]
    assert torch.allclose(environment.memory.command, torch.tensor([1.0, 0.5, 0.4]).expand(2, 3), atol=0.05)
    before = environment.memory.goal.clone()
    environment.commands.ask(None)
    rest(environment, 1)
    assert not torch.equal(environment.memory.goal, before)


def test_a_task_of_poses_goes_on_as_it_was() -> None:
    often = CommandConfig(goal="pose", every_s=(0.1, 0.2))
    first, second = (robots(4, commands=often, rewards=PAID) for _ in range(2))
    for seed in range(8):
        first.step(actions(first, seed))
    second.load_state_dict(first.state_dict())
    for seed in range(8, 16):
        one, two = first.step(actions(first, seed)), second.step(actions(second, seed))
        assert torch.equal(one.observation, two.observation)  # type: ignore[arg-type] # one group
        assert torch.equal(one.reward, two.reward)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"goal": "somewhere"}, "commands.goal=somewhere: must be"),
        ({"goal": "pose", "distance": [2.0, 1.0]}, r"commands.distance=\[2.0, 1.0\]: must be"),
        ({"goal": "pose", "heading": 0.5}, "goal=pose: heading=0.5 is of velocities.*arrival"),
        ({"goal": "jump", "heading": 0.5}, "goal=jump: heading=0.5 is of velocities"),
        ({"goal": "pose", "arrival": 4.0}, "commands.arrival=4"),
        ({"goal": "pose", "facing": 0.0}, "commands.facing=0"),
        ({"goal": "pose", "levels": 3}, "goal=pose: levels=3 are of velocities"),
        ({"goal": "jump", "every_s": [0.5, 4.0]}, r"goal=jump: every_s=\[0.5, 4.0\]: must be above the 0.80 s"),
        ({"goal": "jump", "jump": {"height": [0.2, 0.1]}}, r"commands.jump.height=\[0.2, 0.1\]: must be"),
        ({"goal": "jump", "jump": {"height": [0.0, 0.1]}}, "commands.jump.height"),
    ],
)
def test_a_goal_that_can_not_be_is_one_clear_line(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Validator().build(CommandConfig, given, "commands")


def test_terms_of_another_goal_and_jumps_without_feet_are_refused() -> None:
    with pytest.raises(UserError, match=r"facing_goal: is of tasks that ask for poses"):
        robots(commands=GOTO, rewards={"facing_goal": 1.0})
    with pytest.raises(UserError, match=r"jump_arc is of tasks that ask for jumps"):
        robots(rewards={"jump_arc": 1.0})
    with pytest.raises(UserError, match=r"goal=jump: this robot has no feet"):
        robots(model="ball", commands=CommandConfig(goal="jump"))
    with pytest.raises(UserError, match=r"with commands\.goal=jump switch it off"):
        robots(commands=CommandConfig(goal="jump"), terrain=TerrainConfig(type="tiles"))


def test_keys_ask_for_places_a_step_away_and_are_held_to_what_the_task_draws() -> None:
    driver = driver_of(POSE)
    driver.take(Press("w"))
    assert (driver.command, driver.asks) == ((1.0, 0.0, 0.0), 1)
    driver.take(Press("w"))
    assert (driver.command, driver.asks) == ((1.0, 0.0, 0.0), 2)  # from where the robot has got to by now
    driver.take(Press("q"))
    assert driver.command == pytest.approx((0.0, 0.0, math.pi / 4))
    driver.take(Ask((6.0, 8.0, 9.0)))
    assert driver.command == pytest.approx((1.2, 1.6, POSE.arrival))
    driver.take(Press("space"))
    assert driver.command == (0.0, 0.0, 0.0)
    places = driver_of(GOTO)
    places.take(Ask((1.0, 0.0, 2.0)))
    assert places.command == (1.0, 0.0, 0.0)
    jumps = driver_of(CommandConfig(goal="jump", jump=JumpConfig(distance=(0.0, 0.4), height=(0.1, 0.2))))
    jumps.take(Stick(1.0, 0.0, 0.0))
    assert jumps.command == pytest.approx((0.4, 0.0, 0.15))
    assert isinstance(jumps, GoalDriver)
    assert type(driver_of(CommandConfig())) is Driver


def test_trials_ask_for_poses_and_tell_how_near_robots_came() -> None:
    environment = robots(2, commands=POSE, steps=200, reset=ResetConfig(yaw=3.0, joints=0.0, velocity=0.0))
    scripts = {script.name: script for script in usual_scripts(POSE)}
    still = torch.zeros(2, 12)
    stand, ahead = (
        run_trial(environment, lambda seen, first: still, scripts[name], seconds=0.6, seed=1)
        for name in ("stand", "ahead, turned")
    )
    assert stand.goal is not None
    assert (stand.goal.reached, stand.goal.asked) == (1.0, (0.0, 0.0, 0.0))
    assert ahead.goal is not None
    assert ahead.goal.reached == 0.0
    assert ahead.goal.seconds is None
    assert ahead.goal.distance == pytest.approx(2.0, abs=0.1)
    assert ahead.goal.heading_error == pytest.approx(math.pi / 2, abs=0.05)
    assert ahead.as_json()["goal"]["kind"] == "pose"
    assert ahead.columns["command"] == ("ahead", "left", "turn")


def test_who_moves_to_its_place_has_reached_it_after_so_many_seconds() -> None:
    environment = robots(1, commands=GOTO, steps=200, reset=ResetConfig(joints=0.0, velocity=0.0))
    (script,) = (script for script in usual_scripts(GOTO) if script.name == "ahead")
    steps = iter(range(100))

    def carried(seen: object, first: torch.Tensor) -> torch.Tensor:
        if next(steps) == 20:
            qpos = environment.simulation.qpos.clone()
            qpos[:, :2], qpos[:, 3:7] = environment.memory.goal, from_yaw(environment.state.yaw)
            environment.simulation.place(torch.tensor([True]), qpos, torch.zeros_like(environment.simulation.qvel))
        return torch.zeros(1, 12)

    result = run_trial(environment, carried, script, seconds=1.0, seed=1).goal
    assert result is not None
    assert result.reached == 1.0
    assert result.seconds == pytest.approx(20 * environment.dt)


def test_pictures_mark_the_place_its_heading_and_the_height_of_a_jump() -> None:
    pose = robots(2, commands=POSE)
    goals = pose.commands.goals
    assert goals is not None
    (mark,) = goals.marks(pose.state, 1)
    assert mark.place[:2] == pytest.approx(pose.memory.goal[1].tolist())
    assert mark.yaw == pytest.approx(float(pose.memory.heading[1]))
    assert mark.height is None
    jump = robots(2, commands=CommandConfig(goal="jump", standing=0.0))
    goals = jump.commands.goals
    assert goals is not None
    (mark,) = goals.marks(jump.state, 0)
    assert mark.height == pytest.approx(jump.state.standing_height + float(jump.memory.jump_height[0]))
    jump.commands.ask(torch.zeros(3))
    rest(jump, 1)
    assert goals.marks(jump.state, 0) == []

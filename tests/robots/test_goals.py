"""Robots that are asked to be somewhere, and not to be fast."""

from __future__ import annotations

import math

import pytest
import torch

from etude.config.robots import CommandConfig, ResetConfig, TerrainConfig
from etude.errors import UserError
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


def test_levels_of_velocities_are_refused() -> None:
    with pytest.raises(UserError, match=r"terrain\.curriculum=true: goes by velocities"):
        robots(commands=GOTO, terrain=TerrainConfig(type="tiles"))
    with pytest.raises(ValueError, match="goal=position: levels=3 are of velocities"):
        CommandConfig(goal="position", levels=3)

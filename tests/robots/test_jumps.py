"""Robots that are asked to jump: crouch, fly as what is thrown, land where asked, and stand."""

from __future__ import annotations

import math

import pytest
import torch

from etude.config.robots import CommandConfig, JumpConfig, ResetConfig, TerrainConfig
from etude.robots.environment import RobotVector
from etude.robots.goals import LEAST_CLEARANCE, means_of_jumps
from etude.robots.trial import run_trial, usual_scripts
from tests.robots.robots import actions, rest, robots

TERMS = ("jump_feet", "jump_arc", "jump_velocity", "jump_height", "jump_landing")
ASKED = CommandConfig(
    goal="jump",
    standing=0.0,
    every_s=(2.0, 2.0),
    jump=JumpConfig(distance=(0.3, 0.3), angle=0.0, height=(0.2, 0.2), crouch_s=0.2),
)
STILL = ResetConfig(position=0.0, yaw=3.0, joints=0.0, velocity=0.0)
RISE = 0.2
TAKE_OFF = math.sqrt(2 * 9.81 * RISE)
FLIGHT = 2 * TAKE_OFF / 9.81


def jumpers(count: int = 2, **changes: object) -> RobotVector:
    settings = {"commands": ASKED, "rewards": dict.fromkeys(TERMS, 1.0), "scale_rewards_by_dt": False, "reset": STILL}
    seen = {"observations": {"actor": {"command": {}, "jump_clock": {}}}}
    return robots(count, **{**settings, **seen, **changes})  # type: ignore[arg-type] # of a task


def throw(environment: RobotVector, *, speed: float = TAKE_OFF) -> None:
    """Let robots fly off from where the jump was asked for, toward the place to land at."""
    memory, simulation = environment.memory, environment.simulation
    qpos, qvel = simulation.qpos.clone(), torch.zeros_like(simulation.qvel)
    qpos[:, :3] = memory.jump_from
    qvel[:, :2] = (memory.goal - memory.jump_from[:, :2]) / memory.jump_flight[:, None]
    qvel[:, 2] = speed
    simulation.place(torch.ones(environment.num_envs, dtype=torch.bool), qpos, qvel)


def until(environment: RobotVector, time: float) -> None:
    while float(environment.memory.jump_time[0]) < time - 1e-4:
        rest(environment, 1)


def test_a_jump_is_a_timetable_that_the_clock_shows() -> None:
    environment = jumpers()
    memory = environment.memory
    assert torch.allclose(memory.jump_flight, torch.full((2,), FLIGHT))
    seen = rest(environment, 1).observation
    assert isinstance(seen, torch.Tensor)
    assert torch.allclose(seen[0, 3:], torch.tensor([0.18, 0.0, 0.0]), atol=1e-4)
    assert float(seen[0, 0]) == pytest.approx(0.3, abs=0.02)
    assert float(seen[0, 2]) == pytest.approx(RISE)
    until(environment, FLIGHT / 2)
    assert float(rest(environment, 1).observation[0, 4]) == pytest.approx(0.5, abs=0.1)  # type: ignore[index] # a tensor
    until(environment, FLIGHT + 0.1)
    step = rest(environment, 1)
    assert step.observation[0, :3].tolist() == [0.0, 0.0, 0.0]  # type: ignore[index] # a tensor
    assert not bool(environment.state.is_asked_to_move.any())


def test_who_flies_as_what_is_thrown_is_paid_in_full_and_has_jumped() -> None:
    environment = jumpers()
    memory = environment.memory
    until(environment, 0.0)
    throw(environment)
    memory.jump_time.zero_()
    paid = [rest(environment, 1).info for _ in range(12)]
    for step in paid[:-1]:
        assert float(step["reward/jump_arc"][0]) > 0.95
        assert float(step["reward/jump_velocity"][0]) > 0.9
        assert float(step["reward/jump_feet"][0]) == 1.0
    assert not bool(memory.has_jumped.any())
    until(environment, FLIGHT + 0.1)
    assert memory.has_jumped.tolist() == [True, True]
    assert float(memory.apex[0]) == pytest.approx(RISE, abs=0.02)
    assert float(memory.jump_length[0]) == pytest.approx(0.3, abs=0.05)
    assert float(memory.jump_off[0]) < 0.05
    info = rest(environment, 1).info
    assert float(info["reward/jump_height"][0]) > 0.95
    assert float(info["reward/jump_landing"][0]) > 0.7


def test_who_stays_on_the_ground_or_hops_while_it_is_to_crouch_has_not_jumped() -> None:
    environment = jumpers()
    throw(environment, speed=1.0)  # 0.2 s, over before the take-off that is asked for
    until(environment, FLIGHT + 0.4)
    assert not bool(environment.memory.has_jumped.any())
    info = rest(environment, 1).info
    assert float(info["reward/jump_height"].max()) == float(info["reward/jump_landing"].max()) == 0.0
    assert float(info["reward/jump_feet"][0]) == 1.0  # it stands, as it is to by now


def test_who_stands_tall_has_not_risen_yet() -> None:
    environment = jumpers()
    environment.commands.ask(torch.tensor([0.3, 0.0, 0.2]))
    environment.simulation.batch.qpos[:, 2] = 0.4  # type: ignore[attr-defined] # the CPU's
    rest(environment, 1)
    assert float(environment.memory.jump_from[0, 2]) == pytest.approx(0.4, abs=0.01)


def test_a_jump_onto_something_rises_above_it() -> None:
    bumps = TerrainConfig(type="tiles", kinds={"stairs_up": 1.0}, columns=1, levels=2, first_levels=1, curriculum=False)
    far = CommandConfig(
        goal="jump", standing=0.0, every_s=(4.0, 4.0), jump=JumpConfig(distance=(1.5, 3.0), height=(0.02, 0.02))
    )
    environment = jumpers(32, commands=far, terrain=bumps)
    state, memory = environment.state, environment.memory
    assert state.terrain is not None
    rise = state.terrain.height(memory.goal) - (memory.jump_from[:, 2] - state.standing_height)
    above = rise > 0.02
    assert bool(above.any())
    assert torch.allclose(memory.jump_height[above], rise[above] + LEAST_CLEARANCE, atol=1e-4)
    high = memory.jump_height[above]
    flight = (2 * high / 9.81).sqrt() + (2 * (high - rise[above]) / 9.81).sqrt()
    assert torch.allclose(memory.jump_flight[above], flight, atol=1e-4)


def test_jumps_that_were_due_are_told_of_once() -> None:
    environment = jumpers()
    due = [float(rest(environment, 1).info["jump/due"].sum()) for _ in range(100)]
    assert sum(due) == 2.0
    told = {"jump/due": 0.02, "jump/done": 0.01, "jump/height": 0.002, "jump/off": 0.001, "jump/asked_height": 0.004}
    found = means_of_jumps(told)
    assert found == pytest.approx({"jump_share": 0.5, "jump_height": 0.2, "jump_off": 0.1, "jump_asked_height": 0.2})
    assert means_of_jumps({"jump/due": 0.0}) == {}


def test_a_task_of_jumps_goes_on_as_it_was_also_from_a_checkpoint_without_jumps() -> None:
    often = CommandConfig(goal="jump", every_s=(0.9, 1.0), jump=JumpConfig(crouch_s=0.1, height=(0.05, 0.1)))
    first, second = jumpers(4, commands=often), jumpers(4, commands=often)
    for seed in range(8):
        first.step(actions(first, seed))
    second.load_state_dict(first.state_dict())
    for seed in range(8, 16):
        one, two = first.step(actions(first, seed)), second.step(actions(second, seed))
        assert torch.equal(one.observation, two.observation)  # type: ignore[arg-type] # one group
        assert torch.equal(one.reward, two.reward)
    plain = robots(4)
    old = plain.state_dict()
    for name in ("jump_height", "jump_from", "has_jumped", "apex"):
        del old["memory"][name]
    plain.load_state_dict(old)


def test_trials_ask_for_jumps_and_tell_how_high_and_how_far_they_were() -> None:
    task = CommandConfig(goal="jump", jump=JumpConfig(distance=(0.2, 0.4), height=(0.1, 0.3), crouch_s=0.2))
    environment = jumpers(commands=task, steps=200)
    scripts = {script.name: script for script in usual_scripts(task)}

    def act(seen: object, first: torch.Tensor) -> torch.Tensor:
        if abs(float(environment.memory.jump_time[0])) < 1e-4 and bool(environment.memory.jump_height[0] > 0):
            throw(environment)
        return torch.zeros(2, 12)

    result = run_trial(environment, act, scripts["ahead"], seconds=2.4, seed=1).goal
    assert result is not None
    assert result.asked == pytest.approx((0.3, 0.0, 0.2))
    assert result.reached == 1.0
    assert result.height == pytest.approx(0.2, abs=0.03)
    assert result.length == pytest.approx(0.3, abs=0.06)
    assert result.landing_error is not None
    assert result.landing_error < 0.06
    stood = run_trial(environment, lambda seen, first: torch.zeros(2, 12), scripts["stand"], seconds=0.4, seed=1).goal
    assert stood is not None
    assert (stood.reached, stood.height) == (0.0, None)


def test_a_jump_in_a_mirror_is_as_high() -> None:
    environment = jumpers()
    mirror = environment.mirror()
    seen = torch.tensor([[0.3, 0.2, 0.15, 0.1, 0.0, 0.0]])
    assert mirror.observe(seen)[0].tolist() == pytest.approx([0.3, -0.2, 0.15, 0.1, 0.0, 0.0])  # type: ignore[index] # a tensor

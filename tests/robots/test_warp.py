"""Robots in MuJoCo Warp are the robots of the CPU. On its CPU device here; what needs a GPU is in test_cuda_robots.py.

Compiling Warp's kernels takes a minute the first time; needs the extra gpu.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.config.robots import ActionConfig, ActuatorConfig, CommandConfig, SolverConfig
from etude.errors import EtudeError
from etude.robots.environment import RobotVector
from tests.robots.robots import SEEN, actions, robots

pytestmark = pytest.mark.optional
SEEN_BY_BOTH = {
    "actor": SEEN,
    "critic": {**SEEN, "joint_torque": {}, "feet_height": {}, "feet_force": {}, "joint_velocity": {}},
}


def make(**changes: Any) -> RobotVector:
    pytest.importorskip("mujoco_warp")
    return robots(4, training=True, **{"observations": SEEN_BY_BOTH, "simulator": "warp", **changes})


def pair(**changes: Any) -> tuple[RobotVector, RobotVector]:
    """The same robots in both simulators, in the same state."""
    return make(simulator="cpu", **changes), make(**changes)


def run(environment: RobotVector, steps: int, first: int = 0) -> Any:
    for seed in range(first, first + steps - 1):
        environment.step(actions(environment, seed, 0.5))
    return environment.step(actions(environment, first + steps - 1, 0.5))


RANDOM = {
    "floor_friction": {"range": [0.3, 1.2]},
    "restitution": {"range": [0.01, 0.2]},
    "base_mass": {"range": [-1.0, 2.0]},
    "link_mass": {"range": [0.9, 1.1]},
    "base_com": {"range": [-0.03, 0.03]},
    "stiffness": {"range": [0.9, 1.1]},
    "damping": {"range": [0.9, 1.1]},
    "torque": {"range": [0.9, 1.1]},
    "motor_offset": {"range": [-0.02, 0.02]},
    "joint_friction": {"range": [0.0, 0.1]},
    "joint_damping": {"range": [0.0, 0.1]},
    "armature": {"range": [0.8, 1.2]},
    "push": {"every_s": [0.1, 0.2], "linear": 0.5, "angular": 0.5},
}


CURVED = {"all": ActuatorConfig(stiffness=30, damping=1, effort_limit=20, stall_torque=30, velocity_limit=12)}


@pytest.mark.parametrize(("lag", "motors"), [((0, 0), {}), ((0, 3), {}), ((0, 11), CURVED)])
def test_both_simulators_do_the_same_with_every_randomisation_and_late_motors(
    lag: tuple[float, float], motors: dict[str, ActuatorConfig]
) -> None:
    cpu, warp = pair(randomization=RANDOM, action=ActionConfig(lag=lag), actuators=motors)
    ours, theirs = run(cpu, 25), run(warp, 25)
    torch.testing.assert_close(warp.simulation.qpos, cpu.simulation.qpos, atol=1e-5, rtol=0)
    torch.testing.assert_close(theirs.reward, ours.reward, atol=1e-5, rtol=0)
    for group in SEEN_BY_BOTH:
        torch.testing.assert_close(theirs.observation[group], ours.observation[group], atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("goal", ["pose", "jump"])
def test_both_simulators_ask_for_the_same_goals(goal: Any) -> None:
    commands = CommandConfig(goal=goal, every_s=(1.0, 1.2), standing=0.0)
    terms = ("jump_feet", "jump_arc", "jump_velocity", "jump_landing") if goal == "jump" else ("at_goal", "facing_goal")
    cpu, warp = pair(commands=commands, rewards=dict.fromkeys(terms, 1.0), observations={"actor": {"command": {}}})
    ours, theirs = run(cpu, 25), run(warp, 25)
    torch.testing.assert_close(theirs.reward, ours.reward, atol=1e-3, rtol=0)
    torch.testing.assert_close(theirs.observation, ours.observation, atol=2e-3, rtol=1e-3)


def test_a_robot_that_begins_again_is_seen_where_it_begins() -> None:
    cpu, warp = pair()
    for environment in (cpu, warp):
        run(environment, 3)
        environment.memory.age[1] = environment.max_episode_steps
    ours, theirs = run(cpu, 1, 3), run(warp, 1, 3)
    assert theirs.truncated.tolist() == [False, True, False, False]
    torch.testing.assert_close(theirs.observation["critic"], ours.observation["critic"], atol=2e-3, rtol=1e-3)
    warp.state.refresh()
    assert bool((warp.state.feet_force[1] == 0).all())  # nothing touches it yet
    assert bool((warp.state.feet_height[1] > 0).all())


def test_a_saved_state_is_loaded_bit_for_bit() -> None:
    first, second = make(randomization=RANDOM), make(randomization=RANDOM)
    run(first, 5), run(second, 9)
    saved = first.state_dict()
    second.load_state_dict(saved)
    again = second.state_dict()
    for part in ("state", "fields"):
        for name, value in saved["simulation"][part].items():
            assert torch.equal(again["simulation"][part][name], value), name
    assert torch.equal(run(second, 1, 9).reward, run(first, 1, 9).reward)  # on one thread: in the same order


def test_contacts_for_which_there_is_no_room_are_an_error_that_says_what_to_raise() -> None:
    environment = make(solver=SolverConfig(contacts=1, constraints=60), terminations={})
    environment.simulation.qpos[:, 2] = 0.05  # all of them lie on the ground
    with pytest.raises(EtudeError, match=r"no room for all contacts of robot \d.*solver.contacts \(now 1\)"):
        run(environment, 2)


def test_a_robot_that_blows_up_is_reported_with_its_state() -> None:
    environment = make(terminations={})
    environment.simulation.qvel[2, 3] = torch.nan
    with pytest.raises(EtudeError, match="robot 2 has become unstable 1 steps into its episode"):
        run(environment, 1)


def test_a_robot_that_blows_up_where_the_task_ends_it_harms_nobody() -> None:
    environment = make(terminations={"unstable": {}})
    environment.simulation.qvel[2, 3] = torch.nan
    step = run(environment, 1)
    assert step.terminated.tolist() == [False, False, True, False]
    assert bool(torch.isfinite(step.reward).all())
    assert all(bool(torch.isfinite(part).all()) for part in step.final_observation.values())
    later = run(environment, 5, 1)
    assert all(bool(torch.isfinite(part).all()) for part in later.observation.values())


def test_taking_all_iterations_is_the_same_step() -> None:
    asking, unrolled = (make(solver=SolverConfig(iterations=6, unrolled=unrolled)) for unrolled in (False, True))
    ours, theirs = run(unrolled, 10), run(asking, 10)
    torch.testing.assert_close(ours.reward, theirs.reward, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(unrolled.simulation.qpos, asking.simulation.qpos, atol=1e-5, rtol=1e-5)


def test_compiled_parts_of_a_step_are_the_parts_themselves() -> None:
    """Half a minute and more of compiling: here by a C++ compiler, on a GPU by Triton."""
    legs = ActionConfig(joints=(".*_thigh", ".*_calf"), stride=0.5)
    changes: dict[str, Any] = {"observations": SEEN_BY_BOTH, "simulator": "warp", "randomization": RANDOM, "action": legs}
    config = make(**changes)._config
    plain, compiled = (RobotVector(config, 4, training=True, compiles=compiles) for compiles in (False, True))
    for environment in (plain, compiled):
        environment.episode_steps = 7
        environment.reset(range(4))
    plain._on_host = False  # as on a GPU, where every step draws what new episodes need
    for seed in range(20):
        compiled.load_state_dict(plain.state_dict())
        action = actions(plain, seed, 0.5)
        ours, theirs = compiled.step(action), plain.step(action)
        torch.testing.assert_close(ours.reward, theirs.reward, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours.observation, theirs.observation, atol=1e-4, rtol=1e-4)
        assert torch.equal(ours.terminated | ours.truncated, theirs.terminated | theirs.truncated)
        for name, value in compiled.state.drawn.items():
            torch.testing.assert_close(value, plain.state.drawn[name])
        assert torch.equal(compiled.generator.get_state(), plain.generator.get_state())
    assert [part.is_compiled for part in compiled.traced] == [True] * 3

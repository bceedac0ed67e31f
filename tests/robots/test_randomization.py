"""What is randomised is drawn from its range, from the run's own seed, and reaches the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from etude.robots.environment import RobotVector
from etude.robots.terms.randomizations import RANDOMIZATIONS
from tests.robots.robots import rest, robots

RANGES: dict[str, tuple[float, float]] = {
    "floor_friction": (0.3, 1.3), "restitution": (0.05, 0.4), "base_mass": (-2.0, 2.0), "link_mass": (0.8, 1.2),
    "base_com": (-0.05, 0.05), "stiffness": (0.8, 1.2), "damping": (0.7, 1.3), "torque": (0.9, 1.1),
    "motor_offset": (-0.03, 0.03), "joint_friction": (0.0, 0.2), "joint_damping": (0.0, 0.1), "armature": (0.5, 2.0),
}  # fmt: skip


def randomized(name: str, count: int = 200, **options: Any) -> RobotVector:
    given = options or {"range": list(RANGES[name])}
    return robots(count, training=True, randomization={name: given})


def field(environment: RobotVector, name: str) -> np.ndarray:
    return environment.simulation.batch.model_field(name)  # type: ignore[attr-defined] # the CPU's


def test_every_randomisation_is_here() -> None:
    assert set(RANGES) | {"push", "feet_friction"} == set(RANDOMIZATIONS)


@pytest.mark.parametrize("name", RANGES)
def test_draws_fill_their_range_uniformly_and_episodes_draw_anew(name: str) -> None:
    environment = randomized(name)
    low, high = RANGES[name]
    drawn = environment.state.drawn[name].clone()
    assert float(drawn.min()) >= low
    assert float(drawn.max()) <= high
    assert float(drawn.mean()) == pytest.approx((low + high) / 2, abs=0.1 * (high - low))
    assert float(drawn.std()) == pytest.approx((high - low) / 12**0.5, rel=0.15)
    environment.memory.age[:100] = environment.max_episode_steps  # their time is up at the next step
    rest(environment, 1)
    changed = (environment.state.drawn[name] != drawn).any(1)
    assert bool(changed[:100].any()) == RANDOMIZATIONS[name].at_reset
    assert not bool(changed[100:].any())
    again = randomized(name)
    assert torch.equal(again.state.drawn[name], drawn)


def test_friction_mass_and_gains_reach_the_simulator() -> None:
    friction = randomized("floor_friction", 8)
    floor = friction.scene.model.geom("floor").id
    assert np.allclose(field(friction, "geom_friction")[:, floor, 0], friction.state.drawn["floor_friction"][:, 0].numpy())
    heavy = randomized("base_mass", 8)
    nominal = heavy.scene.model.body_mass[heavy.scene.base_body]
    assert np.allclose(
        field(heavy, "body_mass")[:, heavy.scene.base_body] - nominal, heavy.state.drawn["base_mass"][:, 0].numpy(), atol=1e-5
    )
    stiff = randomized("stiffness", 8)
    drawn = stiff.state.drawn["stiffness"].numpy()
    assert np.allclose(field(stiff, "actuator_gainprm")[..., 0], stiff.scene.stiffness * drawn, rtol=1e-5)
    assert np.allclose(field(stiff, "actuator_biasprm")[..., 1], -stiff.scene.stiffness * drawn, rtol=1e-5)


def test_a_bouncier_floor_gives_back_more_speed() -> None:
    def rebound(restitution: float) -> float:
        environment = robots(1, training=True, randomization={"restitution": {"range": [restitution, restitution]}})
        rest(environment, 40)
        environment.simulation.batch.qpos[0, 2] += 0.2  # type: ignore[attr-defined] # lifted, then falling
        upward = []
        for _ in range(20):
            rest(environment, 1)
            upward.append(float(environment.state.feet_velocity[..., 2].max()))
        return max(upward)

    assert rebound(0.9) > rebound(0.05)


def test_a_push_changes_the_velocity_when_its_time_has_come() -> None:
    environment = randomized("push", 50, every_s=[0.05, 0.05], linear=2.0, angular=0.0)
    rest(environment, 1)
    still = environment.simulation.qvel[:, :2].clone()
    assert float(environment.memory.push.abs().max()) == 0.0
    rest(environment, 2)
    pushed = environment.memory.push[:, :2]
    assert float(pushed.abs().max()) > 1.0
    assert float(pushed.abs().max()) <= 2.0
    moved = environment.simulation.qvel[:, :2] - still
    assert torch.allclose(moved, pushed, atol=0.6)

"""Small tasks for a few robots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from etude.config.robots import RobotConfig
from etude.config.schema import EnvironmentConfig
from etude.environments.vector import Step
from etude.robots.environment import RobotVector

SEEN = {"base_angular_velocity": {}, "gravity": {}, "joint_position": {}, "command": {}}


def task(**changes: Any) -> RobotConfig:
    plain = RobotConfig(
        model="quadruped", observations={"actor": SEEN}, rewards={"track_linear_velocity": 1.0}, terminations={"tilt": {}}
    )
    return replace(plain, **changes)


def robots(count: int = 4, *, training: bool = False, steps: int | None = None, **changes: Any) -> RobotVector:
    config = EnvironmentConfig(id="test", num_envs=count, max_episode_steps=steps, robot=task(**changes))
    environment = RobotVector(config, count, training=training)
    environment.reset(range(count))
    return environment


def actions(environment: RobotVector, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(environment.num_envs, len(environment.scene.acted), generator=generator) * 2 - 1) * size


def rest(environment: RobotVector, steps: int) -> Step:
    """Hold the default pose."""
    still = torch.zeros(environment.num_envs, len(environment.scene.acted))
    for _ in range(steps - 1):
        environment.step(still)
    return environment.step(still)

"""HalfCheetah-v5, Swimmer-v5, Hopper-v5 and Walker2d-v5: paid for speed along a track, the last two for standing too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from etude.environments.native.mujoco_tasks.vector import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class RunnerParameters(NoisyStartParameters):
    """Gymnasium's defaults of a body that runs."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    exclude_current_positions_from_observation: bool = True


@dataclass(frozen=True)
class WalkerParameters(RunnerParameters):
    """Gymnasium's defaults of a body that can fall."""

    frame_skip: int = 4
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3


RunnerT = TypeVar("RunnerT", bound=RunnerParameters)
WalkerT = TypeVar("WalkerT", bound=WalkerParameters)


class RunnerVector(NoisyStartVector[RunnerT]):
    """A body that is paid for speed, and never ends by itself."""

    hidden_positions = 1
    """How many of the first positions an agent does not see: where the body is along the track."""

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without the place, and velocities."""
        return self.qpos[:, self.hidden_positions * self.parameters.exclude_current_positions_from_observation :], self.qvel

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along the track, less the control cost."""
        forward, control_cost = self.run(action)
        return forward - control_cost, False

    def run(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Simulate a step and return what it earns for its speed and what it costs, both (N,)."""
        x_before = self.qpos[:, 0].copy()
        self.simulate(action)
        x_velocity = (self.qpos[:, 0] - x_before) / self.dt
        control_cost = self.parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        return self.parameters.forward_reward_weight * x_velocity, control_cost


class WalkerVector(RunnerVector[WalkerT]):
    """A body that is also paid for standing, and whose fall is the end."""

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without that along the track, and clipped velocities."""
        position, velocity = super().observe()
        return position, np.clip(velocity, -10, 10)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along the track and standing, less the control cost."""
        forward, control_cost = self.run(action)
        healthy = self.is_healthy()
        reward = forward + healthy * self.parameters.healthy_reward - control_cost
        return reward, ~healthy & self.parameters.terminate_when_unhealthy

    def is_healthy(self) -> np.ndarray:
        """Whether each body stands: high enough, and upright. (N,)"""
        min_z, max_z = self.parameters.healthy_z_range
        min_angle, max_angle = self.parameters.healthy_angle_range
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        return (min_z < z) & (z < max_z) & (min_angle < angle) & (angle < max_angle)


@dataclass(frozen=True)
class HalfCheetahParameters(RunnerParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1


class HalfCheetah(RunnerVector[HalfCheetahParameters]):
    """A planar cheetah with six joints, paid for speed."""

    id = "HalfCheetah-v5"
    xml = "half_cheetah.xml"
    parameters_type = HalfCheetahParameters
    velocity_noise = "normal"


@dataclass(frozen=True)
class SwimmerParameters(RunnerParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1


class Swimmer(RunnerVector[SwimmerParameters]):
    """Three links in a viscous fluid, paid for speed."""

    id = "Swimmer-v5"
    xml = "swimmer.xml"
    parameters_type = SwimmerParameters
    hidden_positions = 2  # a place in the plane


@dataclass(frozen=True)
class HopperParameters(WalkerParameters):
    """Gymnasium's defaults."""

    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, float("inf"))
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)


class Hopper(WalkerVector[HopperParameters]):
    """One leg with three joints, paid for speed and for standing."""

    id = "Hopper-v5"
    xml = "hopper.xml"
    parameters_type = HopperParameters

    def is_healthy(self) -> np.ndarray:
        """Whether each leg stands, and nothing of its state has run away. (N,)"""
        low, high = self.parameters.healthy_state_range
        pose = self.qpos[:, 2:]
        contained = ((low < pose) & (pose < high)).all(axis=1) & ((low < self.qvel) & (self.qvel < high)).all(axis=1)
        return contained & super().is_healthy()


class Walker2d(WalkerVector[WalkerParameters]):
    """Two legs in a plane, paid for speed and for standing."""

    id = "Walker2d-v5"
    xml = "walker2d_v5.xml"
    parameters_type = WalkerParameters

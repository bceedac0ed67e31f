"""Hopper-v5: hop forward; ends with a fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class HopperParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, float("inf"))
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


class Hopper(NoisyStartVector[HopperParameters]):
    """One leg with three joints, paid for speed and for standing."""

    id = "Hopper-v5"
    xml = "hopper.xml"
    parameters_type = HopperParameters

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without that along the track, and clipped velocities."""
        position = self.qpos[:, int(self.parameters.exclude_current_positions_from_observation) :]
        return position, np.clip(self.qvel, -10, 10)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along the track and standing, less the control cost; a fall is the end."""
        parameters = self.parameters
        x_before = self.qpos[:, 0].copy()
        self.simulate(action)
        x_velocity = (self.qpos[:, 0] - x_before) / self.dt
        healthy = self._is_healthy()
        control_cost = parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        reward = parameters.forward_reward_weight * x_velocity + healthy * parameters.healthy_reward - control_cost
        return reward, ~healthy & parameters.terminate_when_unhealthy

    def _is_healthy(self) -> np.ndarray:
        min_state, max_state = self.parameters.healthy_state_range
        min_z, max_z = self.parameters.healthy_z_range
        min_angle, max_angle = self.parameters.healthy_angle_range
        z, angle, pose = self.qpos[:, 1], self.qpos[:, 2], self.qpos[:, 2:]
        return (
            ((min_state < pose) & (pose < max_state)).all(axis=1)
            & ((min_state < self.qvel) & (self.qvel < max_state)).all(axis=1)
            & ((min_z < z) & (z < max_z))
            & ((min_angle < angle) & (angle < max_angle))
        )

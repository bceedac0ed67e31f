"""Walker2d-v5: walk forward; ends with a fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class Walker2dParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


class Walker2d(NoisyStartVector[Walker2dParameters]):
    """Two legs in a plane, paid for speed and for standing."""

    id = "Walker2d-v5"
    xml = "walker2d_v5.xml"
    parameters_type = Walker2dParameters

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
        min_z, max_z = parameters.healthy_z_range
        min_angle, max_angle = parameters.healthy_angle_range
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        healthy = (min_z < z) & (z < max_z) & (min_angle < angle) & (angle < max_angle)
        control_cost = parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        reward = parameters.forward_reward_weight * x_velocity + healthy * parameters.healthy_reward - control_cost
        return reward, ~healthy & parameters.terminate_when_unhealthy

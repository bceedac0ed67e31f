"""Swimmer-v5: swim forward; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class SwimmerParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


class Swimmer(NoisyStartVector[SwimmerParameters]):
    """Three links in a viscous fluid, paid for speed."""

    id = "Swimmer-v5"
    xml = "swimmer.xml"
    parameters_type = SwimmerParameters

    def observe(self) -> tuple[np.ndarray, ...]:
        """Angles, without the place in the plane, and velocities."""
        return self.qpos[:, 2 * self.parameters.exclude_current_positions_from_observation :], self.qvel

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along x, less the control cost."""
        x_before = self.qpos[:, 0].copy()
        self.simulate(action)
        x_velocity = (self.qpos[:, 0] - x_before) / self.dt
        control_cost = self.parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        return self.parameters.forward_reward_weight * x_velocity - control_cost, False

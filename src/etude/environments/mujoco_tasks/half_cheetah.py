"""HalfCheetah-v5: run forward; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class HalfCheetahParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


class HalfCheetah(NoisyStartVector[HalfCheetahParameters]):
    """A planar cheetah with six joints, paid for speed."""

    id = "HalfCheetah-v5"
    xml = "half_cheetah.xml"
    parameters_type = HalfCheetahParameters
    velocity_noise = "normal"

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without that along the track, and velocities."""
        return self.qpos[:, int(self.parameters.exclude_current_positions_from_observation) :], self.qvel

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along the track, less the control cost."""
        x_before = self.qpos[:, 0].copy()
        self.simulate(action)
        x_velocity = (self.qpos[:, 0] - x_before) / self.dt
        control_cost = self.parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        return self.parameters.forward_reward_weight * x_velocity - control_cost, False

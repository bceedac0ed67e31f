"""Ant-v5: walk forward on four legs; ends with a fall or a jump."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class AntParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


class Ant(NoisyStartVector[AntParameters]):
    """A torso on four legs, paid for speed and for standing, charged for effort and hard contacts."""

    id = "Ant-v5"
    xml = "ant.xml"
    parameters_type = AntParameters
    velocity_noise = "normal"

    def prepare(self) -> None:
        """The torso's position and the contact forces."""
        self._torso_x = self.simulation.field("xpos")[:, 1, 0]
        self._external_forces = self.simulation.external_forces()

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without the place on the ground, velocities and clipped contact forces."""
        position = self.qpos[:, 2 * self.parameters.exclude_current_positions_from_observation :]
        if not self.parameters.include_cfrc_ext_in_observation:
            return position, self.qvel
        return position, self.qvel, self._contact_forces()[:, 6:]  # the world's own come first

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed along x and standing, less control and contact costs; a torso too low or too high is the end."""
        parameters = self.parameters
        x_before = self._torso_x.copy()
        self.simulate(action)
        x_velocity = (self._torso_x - x_before) / self.dt
        min_z, max_z = parameters.healthy_z_range
        z = self.qpos[:, 2]
        healthy = np.isfinite(self.qpos).all(axis=1) & np.isfinite(self.qvel).all(axis=1) & (min_z <= z) & (z <= max_z)
        control_cost = parameters.ctrl_cost_weight * np.square(action).sum(axis=1)
        contact_cost = parameters.contact_cost_weight * np.square(self._contact_forces()).sum(axis=1)
        rewards = x_velocity * parameters.forward_reward_weight + healthy * parameters.healthy_reward
        return rewards - (control_cost + contact_cost), ~healthy & parameters.terminate_when_unhealthy

    def _contact_forces(self) -> np.ndarray:
        return np.clip(self._external_forces, *self.parameters.contact_force_range).reshape(self.num_envs, -1)

"""Humanoid-v5: walk forward on two legs; ends with a fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


@dataclass(frozen=True)
class HumanoidParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    forward_reward_weight: float = 1.25
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (-float("inf"), 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


class Humanoid(NoisyStartVector[HumanoidParameters]):
    """A body with seventeen joints, paid for speed and for standing, charged for effort and hard contacts."""

    id = "Humanoid-v5"
    xml = "humanoid.xml"
    parameters_type = HumanoidParameters

    def prepare(self) -> None:
        """The bodies' centres and the fields that the observation is made of."""
        parameters, field = self.parameters, self.simulation.field
        self._centers = field("xipos")
        self._external_forces = self.simulation.external_forces()
        parts = [self.qpos[:, 2 * parameters.exclude_current_positions_from_observation :], self.qvel]
        if parameters.include_cinert_in_observation:
            parts.append(self._of_bodies(field("cinert")))
        if parameters.include_cvel_in_observation:
            parts.append(self._of_bodies(field("cvel")))
        if parameters.include_qfrc_actuator_in_observation:
            parts.append(field("qfrc_actuator")[:, 6:])
        if parameters.include_cfrc_ext_in_observation:
            parts.append(self._of_bodies(self._external_forces))
        self._parts = tuple(parts)

    def observe(self) -> tuple[np.ndarray, ...]:
        """Joint positions, without the place on the ground, velocities, inertias and forces: live views of all of them."""
        return self._parts

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Speed of the centre of mass along x and standing, less control and contact costs; a fall is the end."""
        parameters = self.parameters
        x_before = self._center_of_mass_x()
        self.simulate(action)
        x_velocity = (self._center_of_mass_x() - x_before) / self.dt
        min_z, max_z = parameters.healthy_z_range
        z = self.qpos[:, 2]
        healthy = (min_z < z) & (z < max_z)
        control_cost = parameters.ctrl_cost_weight * np.square(self.simulation.ctrl).sum(axis=1)
        forces = np.square(self._external_forces).reshape(self.num_envs, -1)
        contact_cost = np.clip(parameters.contact_cost_weight * forces.sum(axis=1), *parameters.contact_cost_range)
        rewards = parameters.forward_reward_weight * x_velocity + healthy * parameters.healthy_reward
        return rewards - (control_cost + contact_cost), ~healthy & parameters.terminate_when_unhealthy

    def _center_of_mass_x(self) -> np.ndarray:
        mass = self.simulation.model.body_mass
        return np.einsum("b,nbj->nj", mass, self._centers)[:, 0] / mass.sum()

    def _of_bodies(self, field: np.ndarray) -> np.ndarray:
        """A field's values for every body but the world, in one row a copy; a view."""
        return field[:, 1:].reshape(self.num_envs, -1)

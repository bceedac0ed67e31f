"""Ant-v5, Humanoid-v5, InvertedPendulum-v5, InvertedDoublePendulum-v5, Reacher-v5 and Pusher-v5."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.vector import (
    MujocoParameters,
    MujocoVector,
    NoisyStartParameters,
    NoisyStartVector,
    lengths,
)


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


@dataclass(frozen=True)
class InvertedPendulumParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 2
    reset_noise_scale: float = 0.01


class InvertedPendulum(NoisyStartVector[InvertedPendulumParameters]):
    """A pole on a cart, paid for every step that it stands."""

    id = "InvertedPendulum-v5"
    xml = "inverted_pendulum.xml"
    parameters_type = InvertedPendulumParameters

    def observe(self) -> tuple[np.ndarray, ...]:
        """Cart and pole, positions and velocities."""
        return self.qpos, self.qvel

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """One for each step that the pole leans less than 0.2 rad."""
        self.simulate(action)
        finite = np.isfinite(self.qpos).all(axis=1) & np.isfinite(self.qvel).all(axis=1)
        terminated = ~finite | (np.abs(self.qpos[:, 1]) > 0.2)
        return ~terminated, terminated


@dataclass(frozen=True)
class InvertedDoublePendulumParameters(NoisyStartParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1


class InvertedDoublePendulum(NoisyStartVector[InvertedDoublePendulumParameters]):
    """Two poles on a cart, paid for every step that their tip is up, charged for leaning and for speed."""

    id = "InvertedDoublePendulum-v5"
    xml = "inverted_double_pendulum.xml"
    parameters_type = InvertedDoublePendulumParameters
    velocity_noise = "normal"

    def prepare(self) -> None:
        """The tip's position and the constraint forces."""
        self._tip = self.simulation.field("site_xpos")[:, 0]
        self._constraint_force = self.simulation.field("qfrc_constraint")

    def observe(self) -> tuple[np.ndarray, ...]:
        """The cart's position, the angles' sines and cosines, clipped velocities and the force that holds the cart."""
        angles = self.qpos[:, 1:]
        force = np.clip(self._constraint_force[:, :1], -10, 10)
        return self.qpos[:, :1], np.sin(angles), np.cos(angles), np.clip(self.qvel, -10, 10), force

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Standing, less what the tip is off its place and the speed of the joints; a tip below 1 m is the end."""
        self.simulate(action)
        x, y = self._tip[:, 0], self._tip[:, 2]
        terminated = y <= 1
        distance_penalty = 0.01 * x**2 + (y - 2) ** 2
        velocity_penalty = 1e-3 * self.qvel[:, 1] ** 2 + 5e-3 * self.qvel[:, 2] ** 2
        alive_bonus = self.parameters.healthy_reward * ~terminated
        return alive_bonus - distance_penalty - velocity_penalty, terminated


@dataclass(frozen=True)
class ReacherParameters(MujocoParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 2
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0


class Reacher(MujocoVector[ReacherParameters]):
    """An arm with two joints in a plane, charged for the distance to its target and for effort."""

    id = "Reacher-v5"
    xml = "reacher.xml"
    parameters_type = ReacherParameters

    def prepare(self) -> None:
        """Where the fingertip and the target are."""
        positions, model = self.simulation.field("xpos"), self.simulation.model
        self._fingertip, self._target = positions[:, model.body("fingertip").id], positions[:, model.body("target").id]

    def draw_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return an arm nearly straight and at rest, and a target anywhere within its reach."""
        model = self.simulation.model
        qpos = generator.uniform(-0.1, 0.1, model.nq) + model.qpos0
        target = generator.uniform(-0.2, 0.2, 2)
        while np.linalg.norm(target) >= 0.2:
            target = generator.uniform(-0.2, 0.2, 2)
        qpos[-2:] = target
        qvel = np.zeros(model.nv) + generator.uniform(-0.005, 0.005, model.nv)
        qvel[-2:] = 0
        return qpos, qvel

    def observe(self) -> tuple[np.ndarray, ...]:
        """The joints' cosines and sines, the target, the joints' velocities and the way from target to fingertip."""
        angles = self.qpos[:, :2]
        offset = (self._fingertip - self._target)[:, :2]
        return np.cos(angles), np.sin(angles), self.qpos[:, 2:], self.qvel[:, :2], offset

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Less the distance to the target and the control cost."""
        self.simulate(action)
        distance = lengths(self._fingertip - self._target)
        control = np.square(action).sum(axis=1)
        return -distance * self.parameters.reward_dist_weight + -control * self.parameters.reward_control_weight, False


@dataclass(frozen=True)
class PusherParameters(MujocoParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1


class Pusher(MujocoVector[PusherParameters]):
    """An arm with seven joints, charged for the ways from hand to cylinder and from cylinder to goal, and for effort."""

    id = "Pusher-v5"
    xml = "pusher_v5.xml"
    parameters_type = PusherParameters

    def prepare(self) -> None:
        """Where the hand, the cylinder and the goal are."""
        positions, model = self.simulation.field("xpos"), self.simulation.model
        self._hand, self._cylinder, self._goal = (positions[:, model.body(name).id] for name in ("tips_arm", "object", "goal"))

    def draw_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the arm in its pose, nearly at rest, and a cylinder that is not yet near its goal."""
        model = self.simulation.model
        qpos = model.qpos0.copy()
        cylinder = np.zeros(2)
        while np.linalg.norm(cylinder) <= 0.17:
            cylinder = np.concatenate([generator.uniform(-0.3, 0, 1), generator.uniform(-0.2, 0.2, 1)])
        qpos[-4:-2] = cylinder
        qpos[-2:] = 0
        qvel = np.zeros(model.nv) + generator.uniform(-0.005, 0.005, model.nv)
        qvel[-4:] = 0
        return qpos, qvel

    def observe(self) -> tuple[np.ndarray, ...]:
        """The arm's positions and velocities, and where hand, cylinder and goal are."""
        return self.qpos[:, :7], self.qvel[:, :7], self._hand, self._cylinder, self._goal

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Less both distances and the control cost."""
        self.simulate(action)
        near = -lengths(self._cylinder - self._hand) * self.parameters.reward_near_weight
        far = -lengths(self._cylinder - self._goal) * self.parameters.reward_dist_weight
        control = -np.square(action).sum(axis=1) * self.parameters.reward_control_weight
        return far + control + near, False

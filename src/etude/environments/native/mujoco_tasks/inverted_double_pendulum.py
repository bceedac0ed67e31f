"""InvertedDoublePendulum-v5: balance two poles, one on the other, on a cart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


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

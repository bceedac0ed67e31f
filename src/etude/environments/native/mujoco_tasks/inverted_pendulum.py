"""InvertedPendulum-v5: balance a pole on a cart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.noisy_start import NoisyStartParameters, NoisyStartVector


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

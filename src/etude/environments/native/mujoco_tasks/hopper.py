"""Hopper-v5: hop forward; ends with a fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.runners import WalkerParameters, WalkerVector


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

"""Tasks whose episodes begin at the model's own pose, a little disturbed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np

from etude.environments.native.mujoco_tasks.vector import MujocoParameters, MujocoVector


@dataclass(frozen=True)
class NoisyStartParameters(MujocoParameters):
    """What a task with a disturbed start can always be given."""

    reset_noise_scale: float


P = TypeVar("P", bound=NoisyStartParameters)


class NoisyStartVector(MujocoVector[P]):
    """Draws uniform noise around the pose, and uniform or normal noise around rest."""

    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"

    def draw_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the disturbed pose and the velocities of one copy."""
        model, scale = self.simulation.model, self.parameters.reset_noise_scale
        qpos = model.qpos0 + generator.uniform(-scale, scale, model.nq)
        if self.velocity_noise == "normal":
            noise = scale * generator.standard_normal(model.nv)
        else:
            noise = generator.uniform(-scale, scale, model.nv)
        return qpos, np.zeros(model.nv) + noise  # a sum as in Gymnasium: it has no -0.0

"""Reacher-v5: bring a fingertip to a target; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.vector import MujocoParameters, MujocoVector, lengths


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

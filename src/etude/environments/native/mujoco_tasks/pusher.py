"""Pusher-v5: push a cylinder to a goal; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.environments.native.mujoco_tasks.vector import MujocoParameters, MujocoVector, lengths


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

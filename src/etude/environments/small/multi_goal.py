"""A point among four goals, any of which will do (Haarnoja et al. 2017): a policy worth its entropy visits them all."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from etude.environments.small.task import Array, Generators, Outcome, Task, TaskEnv

GOALS = np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0], [0.0, -5.0]])
BOUND = 7.0


class MultiGoal(Task):
    """Move a point by a velocity in [-1, 1]²; cost is 30‖a‖² and the squared distance to the nearest goal, which pays 10."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-BOUND, BOUND, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def draw(self, generator: np.random.Generator) -> Array:
        """Near the middle. (x, y)"""
        return np.clip(generator.normal(0.0, 0.1, 2), -BOUND, BOUND)

    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """Move; it ends within 1 of a goal."""
        velocity = np.clip(action.astype(np.float64), -1, 1)
        position = np.clip(state + velocity, -BOUND, BOUND)
        squared = np.square(position[:, None] - GOALS).sum(-1)
        nearest = squared.min(1)
        arrived = nearest < 1.0
        reward = -30.0 * np.square(velocity).sum(-1) - nearest + 10.0 * arrived
        return Outcome(position, reward, arrived, {"goal": squared.argmin(1)})

    def observe(self, state: Array) -> dict[str, Array]:
        """Where the point is."""
        return {"": state}


class MultiGoalEnv(TaskEnv):
    """The point among goals as a Gymnasium environment."""

    task_class = MultiGoal

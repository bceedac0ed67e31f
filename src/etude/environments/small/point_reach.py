"""A point that is to reach a goal: the smallest task with goals (Plappert et al. 2018)."""

from __future__ import annotations

from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.small.task import Array, Generators, Outcome, Task, TaskEnv, TaskVector

SPEED = 0.1
Values = TypeVar("Values", np.ndarray, Tensor)


class PointReach(Task):
    """Move a point in [-1, 1]² to a goal: 0 within `distance_threshold` of it, else -1.

    Reaching it ends nothing: the point has to stay there. Observations are as goal tasks have them everywhere:
    `observation`, `achieved_goal`, `desired_goal`; and a reward can be asked for any pair of goals.
    """

    def __init__(self, distance_threshold: float = 0.05) -> None:
        if distance_threshold <= 0:
            raise ValueError(f"distance_threshold={distance_threshold}: must be above 0")
        self.distance_threshold = distance_threshold
        keys = ("observation", "achieved_goal", "desired_goal")
        parts: dict[str, gymnasium.Space[Any]] = {key: spaces.Box(-1, 1, (2,), np.float32) for key in keys}
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def compute_reward(self, achieved_goal: Values, desired_goal: Values, info: Any = None) -> Values:
        """0 where a goal is achieved, else -1, for arrays or tensors (..., 2) → (...,)."""
        if isinstance(achieved_goal, Tensor):
            assert isinstance(desired_goal, Tensor)
            missed = torch.linalg.vector_norm(achieved_goal - desired_goal, dim=-1) > self.distance_threshold
            return -missed.to(torch.float32)
        distance = np.linalg.norm(np.asarray(achieved_goal) - np.asarray(desired_goal), axis=-1)
        return -(distance > self.distance_threshold).astype(np.float32)

    def draw(self, generator: np.random.Generator) -> Array:
        """Anywhere, to go anywhere. (x, y, goal x, goal y)"""
        return generator.uniform(-1.0, 1.0, 4)

    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """Move by up to 0.1 in each direction; walls stop the point."""
        position = np.clip(state[:, :2] + SPEED * np.clip(action.astype(np.float64), -1, 1), -1, 1)
        goal = state[:, 2:]
        # As whoever relabels goals will see them: in single precision.
        reward = self.compute_reward(position.astype(np.float32), goal.astype(np.float32))
        return Outcome(np.hstack([position, goal]), reward, np.zeros(len(state), np.bool_), {"success": reward == 0})

    def observe(self, state: Array) -> dict[str, Array]:
        """Where the point is, twice, and where it should be."""
        position, goal = state[:, :2], state[:, 2:]
        return {"observation": position, "achieved_goal": position, "desired_goal": goal}

    def vector(self, num_envs: int, *, max_episode_steps: int | None, return_threshold: float | None = None) -> TaskVector:
        """Return N copies."""
        return PointReachVector(self, num_envs, max_episode_steps, return_threshold)


class PointReachVector(TaskVector):
    """N points; rewards can be asked for goals that were not set."""

    task: PointReach

    def __init__(self, task: PointReach, *arguments: Any) -> None:
        super().__init__(task, *arguments)
        self.compute_reward = task.compute_reward


class PointReachEnv(TaskEnv):
    """The point as a Gymnasium environment, with the `compute_reward` that goal environments have."""

    task_class = PointReach
    task: PointReach

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any = None) -> Any:
        """(..., 2), (..., 2) → (...,)"""
        return self.task.compute_reward(achieved_goal, desired_goal, info)

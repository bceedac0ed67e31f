"""A point with a wall in its way, which it can pass on either side: what is done in the middle is both ways or neither.

         goal  y = 1
           ┌─┐
       ⟲   └─┘   ⟳        half of the demonstrations pass on the left, half on the right; their mean hits the wall
           start y = -0.8

Whoever imitates the mean of what was done stands in front of the wall, however many demonstrations there are.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from etude.environments.small.task import Array, Generators, Outcome, Task, TaskEnv

SPEED = 0.35
"""How far an action of length 1 goes: the side is chosen in a few steps, and there is no time to drift to it."""
WALL = (0.45, 0.3)
"""Half of its width and of its height."""
SIDE = 0.75
"""How far from the middle demonstrations pass."""


class TwoWays(Task):
    """Move a point by a velocity in [-1, 1]² from below a wall to a goal above it, which pays 1; touching the wall ends it."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def draw(self, generator: np.random.Generator) -> Array:
        """Below the wall, near the middle. (x, y)"""
        return np.array([0.0, -0.8]) + generator.normal(0.0, 0.03, 2)

    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """Move; the wall and the goal end the episode."""
        position = np.clip(state + SPEED * np.clip(action.astype(np.float64), -1, 1), -2, 2)
        on_the_way = state + np.linspace(0.25, 1.0, 4)[:, None, None] * (position - state)
        hit = (np.abs(on_the_way) < np.array(WALL)).all(-1).any(0)
        arrived = np.square(position - np.array([0.0, 1.0])).sum(-1) < 0.15**2
        return Outcome(position, arrived.astype(np.float64), hit | arrived, {"hit": np.asarray(hit, np.float64)})

    def observe(self, state: Array) -> dict[str, Array]:
        """Where the point is."""
        return {"": state}

    def demonstrate(self, state: Array, generator: np.random.Generator) -> Array:
        """Return what a demonstrator does in each step of an episode from this state, choosing its side at random. (T, 2)"""
        side = SIDE * (1 if generator.random() < 0.5 else -1)
        actions, position = [], state
        for target in (np.array([side, -0.35]), np.array([side, 0.35]), np.array([0.0, 1.0])):
            while np.linalg.norm(target - position) > 0.08:
                away = (target - position) / SPEED
                action = away / max(1.0, float(np.linalg.norm(away))) + generator.normal(0.0, 0.05, 2)
                actions.append(np.clip(action, -1, 1))
                position = position + SPEED * actions[-1]
        return np.array(actions, dtype=np.float32)


class TwoWaysEnv(TaskEnv):
    """The point and the wall as a Gymnasium environment."""

    task_class = TwoWays

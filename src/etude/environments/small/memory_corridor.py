"""A T-maze (Bakker 2001): the start says which way to turn at the far end."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from etude.environments.small.task import Array, Generators, Outcome, Task, TaskEnv


class MemoryCorridor(Task):
    """See a cue, walk down a corridor where nothing is to be seen, turn left or right at its end: 1 if as the cue, else -1.

    The walk goes on whatever is done; only the turn at the junction counts. Remembering the cue earns 1, guessing 0 on
    average, so nothing but memory helps.
    """

    def __init__(self, length: int = 10) -> None:
        if length < 1:
            raise ValueError(f"length={length}: must be at least 1")
        self.length = length
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)  # cue (-1 left, 1 right; 0 later on), at the junction
        self.action_space = spaces.Discrete(2)  # left, right

    def draw(self, generator: np.random.Generator) -> Array:
        """At the start, with a cue. (position, cue)"""
        return np.array([0.0, 2.0 * generator.integers(2) - 1.0])

    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """One step on, or the turn."""
        position, cue = state.T
        turns = position >= self.length
        turned = np.where(action == 1, 1.0, -1.0)
        following = np.stack([position + 1, cue], axis=1)
        return Outcome(following, np.where(turns, turned * cue, 0.0), turns)

    def observe(self, state: Array) -> dict[str, Array]:
        """The cue at the start, nothing in the corridor, a mark at the junction."""
        position, cue = state.T
        return {"": np.stack([np.where(position == 0, cue, 0.0), position >= self.length], axis=1)}


class MemoryCorridorEnv(TaskEnv):
    """The corridor as a Gymnasium environment."""

    task_class = MemoryCorridor

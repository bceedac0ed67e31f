"""Multi-armed bandits: nothing to see, an arm to pull, a reward by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from gymnasium import spaces

from etude.environments.small.task import Array, Generators, Outcome, Task, TaskEnv


class Bandit(Task):
    """Pull one of `n_arms` arms. gaussian: it pays by a normal distribution; bernoulli: 1 with probability `means[arm]`.

    By default the arms of a Gaussian bandit pay 0 to n_arms on average, evenly spread, with deviation 1, and those of a
    Bernoulli bandit 0.05 to 0.95. An episode is `episode_length` pulls.
    """

    def __init__(
        self,
        n_arms: int = 10,
        means: Sequence[float] | None = None,
        stds: float | Sequence[float] = 1.0,
        episode_length: int = 1,
        rewards: Literal["gaussian", "bernoulli"] = "gaussian",
    ) -> None:
        if n_arms < 2:
            raise ValueError(f"n_arms={n_arms}: must be at least 2")
        if episode_length < 1:
            raise ValueError(f"episode_length={episode_length}: must be at least 1")
        if rewards not in ("gaussian", "bernoulli"):
            raise ValueError(f"rewards={rewards}: must be gaussian or bernoulli")
        spread = (0.0, float(n_arms)) if rewards == "gaussian" else (0.05, 0.95)
        self.means = np.linspace(*spread, n_arms) if means is None else np.asarray(means, np.float64)
        self.stds = np.broadcast_to(np.asarray(stds, np.float64), (n_arms,)) if np.ndim(stds) == 0 else np.asarray(stds)
        for name, values in (("means", self.means), ("stds", self.stds)):
            if values.shape != (n_arms,):
                raise ValueError(f"{name} must be {n_arms} numbers, one for each arm, not {values.size}")
        if rewards == "bernoulli" and not ((self.means >= 0) & (self.means <= 1)).all():
            raise ValueError("means of a bernoulli bandit are probabilities, from 0 to 1")
        self.episode_length, self.rewards = episode_length, rewards
        self.observation_space = spaces.Box(0, 1, (n_arms,), np.float32)  # always 0
        self.action_space = spaces.Discrete(n_arms)

    def draw(self, generator: np.random.Generator) -> Array:
        """No pull so far. (pulls,)"""
        return np.zeros(1)

    def advance(self, state: Array, action: Array, generators: Generators) -> Outcome:
        """Pull an arm."""
        if self.rewards == "gaussian":
            noise = np.array([generator.standard_normal() for generator in generators])
            reward = self.means[action] + self.stds[action] * noise
        else:
            luck = np.array([generator.random() for generator in generators])
            reward = (luck < self.means[action]).astype(np.float64)
        pulls = state + 1
        best = action == self.means.argmax()
        return Outcome(pulls, reward, pulls[:, 0] >= self.episode_length, {"optimal": best})

    def observe(self, state: Array) -> dict[str, Array]:
        """Nothing."""
        return {"": np.zeros((len(state), len(self.means)))}


class BanditEnv(TaskEnv):
    """The bandit as a Gymnasium environment."""

    task_class = Bandit

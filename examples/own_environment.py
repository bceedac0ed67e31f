"""A task of your own: any Gymnasium class will do. This one is a boat that drifts, and has to stop at a pier."""

import sys

import gymnasium
import numpy as np

import etude
from etude.environments.check.check import check_environment


class Pier(gymnasium.Env):
    """Push left, wait or push right; −1 for each step until the boat lies still at the pier."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, push=0.2):
        self.push = push
        # Plain attributes are all that a checkpoint needs to go on exactly.
        self.position = self.speed = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.speed = float(self.np_random.uniform(-3, 3)), 0.0
        return self._observe(), {}

    def step(self, action):
        self.speed = float(np.clip(0.95 * self.speed + self.push * (int(action) - 1), -1, 1))
        self.position = float(np.clip(self.position + self.speed, -10, 10))
        moored = abs(self.position) < 0.3 and abs(self.speed) < 0.15
        # An end of the task is `terminated`; the time limit below is not, and its last state is bootstrapped.
        return self._observe(), 0.0 if moored else -1.0, moored, False, {}

    def _observe(self):
        return np.array([self.position, self.speed], np.float32)


gymnasium.register("Pier-v0", lambda **kwargs: Pier(**kwargs), max_episode_steps=60)

if __name__ == "__main__":
    print([remark.says for remark in check_environment("Pier-v0") if remark.level != "fine"])
    run = etude.train("Pier-v0:ppo", "training.total_steps=60_000", *sys.argv[1:])
    print(run.evaluate(100).metrics())

"""Four goals, any of which will do: soft Q-learning keeps its entropy, and its policy visits them all."""

import sys
from collections import Counter

import numpy as np

import etude

GOALS = {"east": (5, 0), "west": (-5, 0), "north": (0, 5), "south": (0, -5)}

if __name__ == "__main__":
    run = etude.train("MultiGoal-v0:sql", *sys.argv[1:])
    visited = Counter()
    for path in etude.play(run.path, 40, mode="sample", max_steps=60):
        end = path["next_observations"][-1]
        visited[min(GOALS, key=lambda name: np.hypot(*(end - GOALS[name])))] += 1
    print(dict(visited))
    # Pictures of the Q-function in four places, with the actions that the policy draws there, are among the run's videos.
    print(sorted(path.name for path in run.videos.glob("*.png")))

"""Demonstrations by rules: of tasks of ours that know how they are done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch

from etude.compute.random_streams import derive_seed
from etude.datasets.episode import Episode
from etude.environments.small.task import Task, TaskEnv
from etude.errors import UserError

PREFIX = "script:"
"""What such demonstrations are called on the command line: `script:TwoWays-v0`."""


def demonstrated(name: str) -> Task:
    """Return the task of an id; UserError where nobody has written down how it is done."""
    from etude.environments import small

    small.register()
    env: Any = gymnasium.make(name).unwrapped if name in small.NATIVE else None
    if not isinstance(env, TaskEnv) or not hasattr(env.task, "demonstrate"):
        raise UserError(f"{PREFIX}{name}: nobody has written down how it is done; there is TwoWays-v0")
    return env.task


def demonstrations(task: Task, episodes: int, seed: int = 0) -> Iterator[Episode]:
    """Yield whole episodes of what the task's own demonstrator does."""
    for index in range(episodes):
        own = derive_seed(seed, "demonstration", index)
        generator = np.random.default_rng(own)
        state = task.draw(generator)[None]
        actions: np.ndarray = task.demonstrate(state[0], generator)  # type: ignore[attr-defined] # `demonstrated` has looked
        seen, rewards, ended = [task.observe(state)[""][0]], [], False
        for action in actions:
            state, reward, terminated, _ = task.advance(state, action[None], [generator])
            seen.append(task.observe(state)[""][0])
            rewards.append(float(reward[0]))
            ended = bool(terminated[0])
            if ended:
                break
        done = torch.from_numpy(actions[: len(rewards)])
        observation = torch.from_numpy(np.array(seen, dtype=np.float32))
        yield Episode(observation, done, torch.tensor(rewards), ended, own)

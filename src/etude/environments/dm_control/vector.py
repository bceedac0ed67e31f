"""Many copies of a task of the Control Suite, stepped in turn, their observations written where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.dm_control.env import write
from etude.environments.dm_control.suite_task import SuiteTask
from etude.environments.dm_control.tasks import MAX_EPISODE_STEPS
from etude.environments.spaces import observation_specs
from etude.environments.step_buffers import BufferPair
from etude.environments.vector import Observation, Step, VectorEnvironment


class DmControlVector(VectorEnvironment):
    """N copies that observe one vector. Same seeds and actions give the Gymnasium environment's trajectories, bit for bit.

    Physics takes most of a step, and the suite's own Python much of the rest; there is nothing here but a loop.
    """

    device = torch.device("cpu")
    snapshot = "exact"

    def __init__(self, name: str, num_envs: int, *, max_episode_steps: int | None = None) -> None:
        self.num_envs = num_envs
        self._copies = [SuiteTask(name) for _ in range(num_envs)]
        first = self._copies[0]
        self.single_action_space = first.action_space
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (first.size,), np.float32)
        self._max_episode_steps = max_episode_steps or MAX_EPISODE_STEPS
        self._elapsed = [0] * num_envs
        self._has_begun = False
        self._buffers = BufferPair.zeros(num_envs, observation_specs(self.single_observation_space))

    @property
    def suite_tasks(self) -> Sequence[SuiteTask]:
        """The copies, in order."""
        return self._copies

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        buffers = self._buffers.next()
        rows = buffers.arrays[""]
        for index, (copy, seed) in enumerate(zip(self._copies, seeds, strict=True)):
            write(copy.begin(seed), rows[index])
            self._elapsed[index] = 0
        self._has_begun = True
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        if not self._has_begun:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        buffers = self._buffers.next()
        rows, elapsed, limit = buffers.arrays[""], self._elapsed, self._max_episode_steps
        ended = []
        for index, (copy, one) in enumerate(zip(self._copies, action.numpy(), strict=True)):
            reward, terminated = copy.advance(one)
            elapsed[index] += 1
            write(copy.observe(), rows[index])
            buffers.reward[index] = reward
            buffers.terminated[index] = terminated
            buffers.truncated[index] = truncated = elapsed[index] >= limit
            if terminated or truncated:
                ended.append(index)
        if not ended:
            return buffers.as_step(buffers.observation)
        buffers.finals[""][...] = rows
        for index in ended:
            write(self._copies[index].begin(None), rows[index])
            elapsed[index] = 0
        return buffers.as_step(buffers.final_observation)

    def close(self) -> None:
        """Free the simulations."""
        for copy in self._copies:
            copy.physics.free()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every copy and how far its episode has come."""
        return {"copies": [copy.state_dict() for copy in self._copies], "elapsed": list(self._elapsed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        for copy, saved in zip(self._copies, state["copies"], strict=True):
            copy.load_state_dict(saved)
        self._elapsed = list(state["elapsed"])
        self._has_begun = True

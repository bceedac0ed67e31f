"""A pool of EnvPool as a vector environment with same-step resets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from etude.environments.gymnasium import complete_finals
from etude.environments.spaces import action_spec, first_value, observation_specs, to_gymnasium
from etude.environments.step_buffers import BufferPair
from etude.environments.vector import Observation, Step, VectorEnvironment


class EnvpoolVector(VectorEnvironment):
    """Steps all copies in EnvPool's threads.

    By itself a copy that ended takes its next action for a reset, a step that belongs to no episode. Here those that ended
    are reset at once, by their numbers, so that no such step is ever seen. EnvPool can't save a state: `restart`.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        make: Callable[[Sequence[int]], Any],
        num_envs: int,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        spec: Any,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        threshold = getattr(spec.config, "reward_threshold", None)
        self.return_threshold = float(threshold) if isinstance(threshold, int | float) and np.isfinite(threshold) else None
        action_spec(action_space)  # refuses what no tensor can act in
        specs = observation_specs(observation_space)
        self._is_dict = "" not in specs
        self._first = first_value(action_space)
        self._action_dtype = np.dtype(action_space.dtype)
        self._make, self._pool = make, None
        self._buffers = BufferPair.zeros(num_envs, specs)

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`; seeds are given to a pool when it is made, so this makes a new one."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        buffers = self._buffers.next()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how Gymnasium's boxes round its bounds
            self._pool = self._make(seeds)
            observation, _ = self._pool.reset()
        self._write(buffers.arrays, slice(None), observation)
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        assert self._pool is not None, "reset first"
        buffers = self._buffers.next()
        actions = np.asarray(to_gymnasium(action, self.single_action_space, self._first), self._action_dtype)
        observation, reward, terminated, truncated, _ = self._pool.step(actions)
        self._write(buffers.arrays, slice(None), observation)
        buffers.reward[:], buffers.terminated[:], buffers.truncated[:] = reward, terminated, truncated
        ended = np.flatnonzero(buffers.terminated | buffers.truncated)
        if ended.size:
            for name, final in buffers.finals.items():
                final[ended] = buffers.arrays[name][ended]
            begun, info = self._pool.reset(ended.astype(np.int32))
            self._write(buffers.arrays, info["env_id"], begun)  # in the order in which they were ready
        return buffers.as_step(complete_finals(buffers))

    def close(self) -> None:
        """Free the threads."""
        self._pool = None

    def _write(self, arrays: dict[str, np.ndarray], which: Any, observation: Any) -> None:
        for name, array in arrays.items():
            array[which] = observation[name] if self._is_dict else observation

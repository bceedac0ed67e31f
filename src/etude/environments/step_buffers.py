"""Memory that a CPU environment writes its steps into, seen as arrays by the environment and as tensors by everyone else."""

from __future__ import annotations

import numpy as np
import torch

from etude.environments.spaces import TensorSpec
from etude.environments.vector import RAW_REWARD, ArrayStep, Observation, Step


class StepBuffers:
    """NumPy arrays that sub-environments write into, and tensors that see the same memory."""

    def __init__(self, arrays: dict[str, np.ndarray], finals: dict[str, np.ndarray], *rest: np.ndarray) -> None:
        """`rest` is (N,) each: rewards, raw rewards, terminated, truncated."""
        self.arrays, self.finals = arrays, finals
        self.reward, self.raw_reward, self.terminated, self.truncated = rest
        self.observation = _as_observation(self.arrays)
        self.final_observation = _as_observation(self.finals)
        self.reward_tensor = torch.from_numpy(self.reward)
        self.raw_reward_tensor = torch.from_numpy(self.raw_reward)
        self.terminated_tensor = torch.from_numpy(self.terminated)
        self.truncated_tensor = torch.from_numpy(self.truncated)
        self._array_steps: list[ArrayStep] = []

    @classmethod
    def zeros(cls, num_envs: int, specs: dict[str, TensorSpec]) -> StepBuffers:
        """Return buffers of their own memory."""
        arrays = {name: np.zeros((num_envs, *spec.shape), spec.numpy_dtype) for name, spec in specs.items()}
        finals = {name: np.zeros_like(array) for name, array in arrays.items()}
        return cls(arrays, finals, *(np.zeros(num_envs, dtype) for dtype in (np.float32, np.float32, np.bool_, np.bool_)))

    def as_step(self, final_observation: Observation, *, with_raw_reward: bool = False) -> Step:
        """Return what was written, as a Step."""
        info = {RAW_REWARD: self.raw_reward_tensor} if with_raw_reward else {}
        return Step(
            self.observation, self.reward_tensor, self.terminated_tensor, self.truncated_tensor, final_observation, info
        )

    def as_arrays(self, *, ended: bool) -> ArrayStep:
        """Return the same as arrays, for a task that has one observation; with the final ones where an episode ended."""
        if not self._array_steps:
            self._array_steps = [
                ArrayStep(self.arrays[""], self.reward, self.terminated, self.truncated, final)
                for final in (self.arrays[""], self.finals[""])
            ]
        return self._array_steps[ended]


class BufferPair:
    """Two sets of buffers in turn: what a step returned stays valid while the next one is made."""

    def __init__(self, first: StepBuffers, second: StepBuffers) -> None:
        self._pair, self._turn = (first, second), 0

    @classmethod
    def zeros(cls, num_envs: int, specs: dict[str, TensorSpec]) -> BufferPair:
        """Return a pair with its own memory."""
        return cls(StepBuffers.zeros(num_envs, specs), StepBuffers.zeros(num_envs, specs))

    def next(self) -> StepBuffers:
        """Return the set whose turn it is."""
        self._turn ^= 1
        return self._pair[self._turn]


def _as_observation(arrays: dict[str, np.ndarray]) -> Observation:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return tensors.get("", tensors)

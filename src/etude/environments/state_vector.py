"""Environments whose copies are a few numbers and a generator each: what they keep, and how it is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from etude.environments.spaces import observation_specs
from etude.environments.step_buffers import BufferPair
from etude.environments.vector import VectorEnvironment


class StateVector(VectorEnvironment):
    """N copies on the CPU, each with a row of numbers for its state, an age in steps and a generator."""

    device = torch.device("cpu")
    snapshot = "exact"

    def __init__(self, num_envs: int, state_size: int, observation_space: Any, action_space: Any) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self._generators: list[np.random.Generator] = []
        self._state = np.zeros((num_envs, state_size))
        self._age = np.zeros(num_envs, np.int64)
        self._buffers = BufferPair.zeros(num_envs, observation_specs(observation_space))

    def state_dict(self) -> dict[str, Any]:
        """Return states, ages and generators."""
        return {
            "state": torch.from_numpy(self._state.copy()),
            "age": torch.from_numpy(self._age.copy()),
            "generators": [generator.bit_generator.state for generator in self._generators],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        self._state = state["state"].numpy().copy()
        self._age[:] = state["age"].numpy()
        self._generators = [generator_at(saved) for saved in state["generators"]]


def generator_at(state: Any) -> np.random.Generator:
    """Return a generator of the kind that Gymnasium seeds, in a saved state."""
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)

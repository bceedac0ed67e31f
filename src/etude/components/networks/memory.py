"""The contract of networks that remember: what one step and a whole sequence of steps do to their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from etude.compute.trees import Tree, at
from etude.environments.vector import Observation

Memory = Tree
"""What a network remembers of N episodes: a tensor, or a dict, list or tuple of tensors (N, ...)."""


class MemoryNetwork(nn.Module, ABC):
    """A network whose output depends on what it saw before in the same episode.

    A sequence is the same as its steps one after another; where `is_first` says that an episode begins, everything before is
    forgotten before the observation is looked at.
    """

    capturable: bool = False
    """Whether a step and a sequence are functions of tensors that ask the device for nothing."""

    @abstractmethod
    def initial_state(self, n: int) -> Memory:
        """Return the state at the start of n episodes."""

    @abstractmethod
    def forward(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take one step: observation (N, ...), is_first (N,) → outputs (N, output_size) and the state after it."""

    def unroll(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take T steps: observation (T, N, ...), is_first (T, N) → outputs (T, N, output_size) and the state after them."""
        outputs = []
        for t, first in enumerate(is_first):
            output, state = self(at(observation, t), state, first)
            outputs.append(output)
        return torch.stack(outputs), state


def has_memory(network: Any) -> bool:
    """Whether a network, or its class, carries a state from step to step."""
    return isinstance(network, MemoryNetwork) or is_kind(network, MemoryNetwork)


def is_kind(made_by: Any, kind: type[nn.Module]) -> bool:
    """Whether what a config's type means, a class or a function of the user's own, makes networks of a kind."""
    return isinstance(made_by, type) and issubclass(made_by, kind)


def is_capturable(network: nn.Module) -> bool:
    """Whether a network may be part of a CUDA graph: one without memory, or one whose memory says so."""
    return not isinstance(network, MemoryNetwork) or network.capturable


def forget(state: Tensor, is_first: Tensor) -> Tensor:
    """Return the state with that of new episodes set to zero. state (N, ...), is_first (N,)"""
    return state.masked_fill(is_first.reshape(-1, *[1] * (state.ndim - 1)), 0)

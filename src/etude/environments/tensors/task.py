"""What a task of torch tensors is: where episodes begin, what an action does, what is seen; for all copies at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import gymnasium
import torch
from torch import Generator, Tensor

from etude.environments.vector import Observation

State = dict[str, Tensor]
"""All that the next step depends on, by name: (N, ...) each, of the same types and shapes for ever."""


class Advanced(NamedTuple):
    """What one step of N copies did, before any of them begins again."""

    state: State
    reward: Tensor
    """(N,) float"""
    terminated: Tensor
    """(N,) bool"""


class TensorTask(ABC):
    """The rules of a task, as functions of tensors on any device.

    Nothing in them may ask the device for a number (`.item()`, `if tensor`, `.nonzero()`), so that a whole rollout can be
    captured as one CUDA graph. Random numbers come from the generator that is given, by the functions of `etude.compute.draws`
    where steps are to be compiled too; what a task keeps besides is for `to`.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    max_episode_steps: ClassVar[int | None] = None
    """After how many steps an episode is cut, unless a config says otherwise."""
    return_threshold: ClassVar[float | None] = None
    """The mean return from which on the task counts as solved."""

    @abstractmethod
    def begin(self, count: int, generator: Generator) -> State:
        """Return the states in which episodes of `count` copies begin, on the generator's device."""

    @abstractmethod
    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Act in every copy. The state that is given is not to be written to."""

    @abstractmethod
    def observe(self, state: State) -> Observation:
        """Return what is seen of each state: float32 or the space's own type. (N, ...)"""

    def to(self, device: torch.device) -> None:  # noqa: B027 # most tasks keep nothing
        """Move what the task keeps besides states, such as tables, to a device; called once, before anything else."""

    def draw(self, state: State) -> Tensor | None:
        """Return a picture of the first copy, (height, width, 3) bytes, or None."""
        return None

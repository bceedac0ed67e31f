"""Acting in NumPy, for the few rows of a training on the CPU: there a pass through torch is all dispatch, three times as slow.

The weights are the networks' own memory, and random numbers come from the same torch generator, in the same order.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor, nn

from etude.components.distributions import LOG_STD_RANGE, ActionHead, BoundedHead, DeterministicHead, SquashedGaussianHead
from etude.components.networks.mlp import HostMLP
from etude.components.normalizers import ObservationNormalizer
from etude.environments.vector import Observation


class HostActor:
    """An actor that is a plain MLP with bounded actions: normalise, one pass, a sample between the bounds."""

    def __init__(self, normalizer: ObservationNormalizer, network: HostMLP, head: BoundedHead) -> None:
        self._normalizer, self._network = normalizer, network
        self._is_gaussian, self._actions = isinstance(head, SquashedGaussianHead), head.actions
        self._shape = head.middle.shape
        self._middle, self._reach = head.middle.numpy(), head.reach.numpy()

    @classmethod
    def of(
        cls, normalizer: ObservationNormalizer, actor: nn.Module, head: ActionHead, space: gymnasium.Space[Any] | None
    ) -> HostActor | None:
        """Return the NumPy twin of an actor; None if it has none, for what it reads, what it is or where it lives."""
        if space is None or type(head) not in (SquashedGaussianHead, DeterministicHead):
            return None
        network = HostMLP.of(actor, space)
        assert isinstance(head, BoundedHead)
        return None if network is None else cls(normalizer, network, head)

    def act(self, observation: Observation, is_greedy: bool, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return environment actions, and the samples in [-1, 1] that they are stretched from. (N, ...)"""
        seen = self._normalizer(observation)
        assert isinstance(seen, Tensor)
        outputs = self._network.forward(seen.numpy())
        before = outputs[:, : self._actions]
        if self._is_gaussian and not is_greedy:
            noise = torch.empty(before.shape).normal_(generator=generator).numpy()
            noise *= np.exp(outputs[:, self._actions :].clip(*LOG_STD_RANGE))
            before = before + noise
        sample = np.tanh(before)
        return torch.from_numpy(self.to_environment(sample)), torch.from_numpy(sample)

    def to_environment(self, sample: np.ndarray) -> np.ndarray:
        """(N, D) in [-1, 1] → (N, *space.shape)"""
        return self._middle + self._reach * sample.reshape(-1, *self._shape)

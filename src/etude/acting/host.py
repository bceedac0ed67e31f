"""Acting in NumPy, for the few rows of a training on the CPU: there a pass through torch is all dispatch, three times as slow.

The weights are the networks' own memory, and random numbers come from the same torch generator, in the same order.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor, nn

from etude.components.distributions import (
    LOG_STD_RANGE,
    ActionHead,
    BoundedHead,
    CategoricalHead,
    DeterministicHead,
    GaussianHead,
    SquashedGaussianHead,
)
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

    def act(self, observation: Observation, is_greedy: bool, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return environment actions, and as an extra the samples in [-1, 1] that they are stretched from. (N, ...)"""
        seen = self._normalizer(observation)
        assert isinstance(seen, Tensor)
        outputs = self._network.forward(seen.numpy())
        before = outputs[:, : self._actions]
        if self._is_gaussian and not is_greedy:
            noise = torch.empty(before.shape).normal_(generator=generator).numpy()
            noise *= np.exp(outputs[:, self._actions :].clip(*LOG_STD_RANGE))
            before = before + noise
        sample = np.tanh(before)
        return torch.from_numpy(self.to_environment(sample)), {"sample": torch.from_numpy(sample)}

    def to_environment(self, sample: np.ndarray) -> np.ndarray:
        """(N, D) in [-1, 1] → (N, *space.shape)"""
        return self._middle + self._reach * sample.reshape(-1, *self._shape)


class HostSampler:
    """An actor that is a plain MLP over a few choices, or over numbers of a deviation of its own; with log-probabilities."""

    def __init__(self, normalizer: ObservationNormalizer, network: HostMLP, head: CategoricalHead | GaussianHead) -> None:
        self._normalizer, self._network = normalizer, network
        self._chooses = isinstance(head, CategoricalHead)
        if isinstance(head, GaussianHead):
            self._log_std = head.log_std.detach().numpy()
            self._middle, self._reach = head.middle.numpy(), head.reach.numpy()
            self._bounds = (head.low.numpy(), head.high.numpy())

    @classmethod
    def of(
        cls, normalizer: ObservationNormalizer, actor: nn.Module, head: ActionHead, space: gymnasium.Space[Any] | None
    ) -> HostSampler | None:
        """Return the NumPy twin of an actor; None if it has none."""
        if space is None or type(head) not in (CategoricalHead, GaussianHead):
            return None
        network = HostMLP.of(actor, space)
        assert isinstance(head, CategoricalHead | GaussianHead)
        return None if network is None else cls(normalizer, network, head)

    def act(self, observation: Observation, is_greedy: bool, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return environment actions, and as extras samples and their log-probabilities. (N, ...)"""
        assert isinstance(observation, Tensor)
        action, extras = self.act_on_arrays(observation.numpy(), "greedy" if is_greedy else "sample", generator)
        return torch.from_numpy(action), {name: torch.from_numpy(value) for name, value in extras.items()}

    def act_on_arrays(self, seen: np.ndarray, way: str, generator: Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same from arrays to arrays."""
        if self._normalizer.mode != "off":
            seen = self._normalizer(torch.from_numpy(seen)).numpy()
        outputs = self._network.forward(seen)
        noise = None
        if way != "greedy":
            drawn = torch.empty(outputs.shape)
            noise = (drawn.exponential_ if self._chooses else drawn.normal_)(generator=generator).numpy()
        return _chosen(outputs, noise) if self._chooses else self._reached(outputs, noise)

    def _reached(self, mean: np.ndarray, noise: np.ndarray | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        noise = np.zeros_like(mean) if noise is None else noise
        sample = mean + np.exp(self._log_std) * noise
        log_prob = (-0.5 * noise * noise - self._log_std).sum(1) - np.float32(0.5 * math.log(2 * math.pi) * mean.shape[1])
        action = self._middle + self._reach * sample.reshape(-1, *self._middle.shape)
        return np.clip(action, *self._bounds), {"sample": sample, "log_prob": log_prob}


def _chosen(logits: np.ndarray, race: np.ndarray | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Choose by the exponential race, as `Categorical` does; without one, the likeliest."""
    logits -= logits.max(1, keepdims=True)
    weights = np.exp(logits)
    sample = (logits if race is None else weights / race).argmax(1)
    log_prob = logits[np.arange(len(sample)), sample] - np.log(weights.sum(1))
    return sample, {"sample": sample, "log_prob": log_prob}

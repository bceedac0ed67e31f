"""Action distributions in NumPy with their gradients written out: log-probabilities, entropies, and what they change with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from etude.components.distributions import ActionHead, CategoricalHead, GaussianHead

Array = np.ndarray[Any, Any]


class WrittenDistribution(Protocol):
    """A batch of distributions, each with the action that was taken."""

    log_prob: Array
    """(B,)"""
    entropy: Array
    """(B,)"""

    def pull(self, of_log_prob: Array, of_entropy: float) -> Array:
        """Return the gradient of the outputs (B, size), from those of each log-probability and of every entropy.

        That of the head's own parameters is written where it belongs.
        """
        ...


class WrittenHead(Protocol):
    """Makes a batch of distributions of a network's outputs."""

    def __call__(self, outputs: Array, sample: Array) -> WrittenDistribution:
        """Return them, for outputs (B, size) and what was drawn."""
        ...


def written_head(head: ActionHead, gradients: Mapping[Tensor, Array]) -> WrittenHead | None:
    """Return a head's twin, which writes the gradients of its parameters; None without one, or off the host's memory."""
    if type(head) is CategoricalHead:
        return _Categorical
    if type(head) is GaussianHead and head.log_std.device.type == "cpu":
        log_std, own = head.log_std.detach().numpy(), gradients.get(head.log_std)
        return lambda outputs, sample: _Gaussian(outputs, sample, log_std, own)
    return None


class _Categorical:
    """One choice out of A, from logits (B, A)."""

    def __init__(self, outputs: Array, sample: Array) -> None:
        shifted = outputs - outputs.max(-1, keepdims=True)
        weights = np.exp(shifted)
        total = weights.sum(-1, keepdims=True)
        self._log_probs, self._probs = shifted - np.log(total), weights / total
        self._place = (np.arange(len(sample)), sample)
        self.log_prob = self._log_probs[self._place]
        self.entropy = -np.einsum("ij,ij->i", self._probs, self._log_probs)

    def pull(self, of_log_prob: Array, of_entropy: float) -> Array:
        """∂ log p(a) = 1[a] - p, and ∂H = -p (log p + H)."""
        gradient = self._probs * -of_log_prob[:, None]
        gradient[self._place] += of_log_prob
        if of_entropy:
            gradient -= of_entropy * self._probs * (self._log_probs + self.entropy[:, None])
        return gradient


class _Gaussian:
    """Independent normals, with means (B, D) and one log standard deviation (D,) for all rows."""

    def __init__(self, mean: Array, sample: Array, log_std: Array, of_log_std: Array | None) -> None:
        self._of_log_std = of_log_std
        self._inverse = np.exp(-log_std)
        self._scaled = (sample - mean) * self._inverse
        self._squares = self._scaled * self._scaled
        constant = 0.5 * math.log(2 * math.pi) * len(log_std)
        self.log_prob = -0.5 * self._squares.sum(-1) - (log_std.sum() + np.float32(constant))
        self.entropy = np.broadcast_to(log_std.sum() + np.float32(constant + 0.5 * len(log_std)), len(mean))

    def pull(self, of_log_prob: Array, of_entropy: float) -> Array:
        """∂ log p = z/σ for the mean and z² - 1 for log σ; an entropy grows by 1 with each log σ."""
        if self._of_log_std is not None:
            np.matmul(of_log_prob, self._squares, out=self._of_log_std)
            self._of_log_std += len(of_log_prob) * of_entropy - of_log_prob.sum()
        return self._scaled * self._inverse * of_log_prob[:, None]

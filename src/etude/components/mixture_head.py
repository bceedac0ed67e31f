"""Several Gaussians for bounded actions: what different demonstrators did in one place stays apart.

    p(a | s) = Σ w_k(s) N(a; tanh m_k(s), σ_k(s))        on a scale where the bounds are ±1

The mode is the mean of the likeliest component. One component is a plain Gaussian.
"""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.components.distributions import BoundedHead

LOG_STD_RANGE = (-4.0, 1.0)
"""Narrower than for a policy that explores: what was recorded without noise would drive σ to nothing."""


class Mixture:
    """Components (N, K, D) with logits (N, K)."""

    def __init__(self, logits: Tensor, mean: Tensor, log_std: Tensor) -> None:
        self.log_weights, self.mean, self.log_std = logits.log_softmax(-1), mean, log_std

    def sample(self, generator: Generator) -> Tensor:
        """Draw (N, D)."""
        race = torch.empty_like(self.log_weights).exponential_(generator=generator)
        chosen = (self.log_weights - race.log()).argmax(-1)
        noise = torch.empty_like(self.mean[..., 0, :]).normal_(generator=generator)
        return (_of(self.mean, chosen) + _of(self.log_std, chosen).exp() * noise).clamp(-1, 1)

    def mode(self) -> Tensor:
        """Return the mean of the likeliest component."""
        return _of(self.mean, self.log_weights.argmax(-1))

    def log_prob(self, action: Tensor) -> Tensor:
        """(N, D) → (N,)"""
        away = (action.unsqueeze(-2) - self.mean) * (-self.log_std).exp()
        each = (-0.5 * away.square() - self.log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * action.shape[-1]
        return torch.logsumexp(self.log_weights + each, -1)

    def entropy(self) -> Tensor:
        """Return an upper bound (N,): that of the choice and, on average, of what is chosen."""
        each = (self.log_std + 0.5 * (1 + math.log(2 * math.pi))).sum(-1)
        return (self.log_weights.exp() * (each - self.log_weights)).sum(-1)


class MixtureHead(BoundedHead):
    """Weights, means and standard deviations all depend on the observation."""

    def __init__(self, space: spaces.Box, mixtures: int = 1) -> None:
        self.per_action = 2 * mixtures
        super().__init__(space)
        self.mixtures = mixtures
        self.size += mixtures

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Mixture:
        """(N, K + 2 K D) → a mixture"""
        logits, mean, log_std = outputs.split([self.mixtures, *[self.mixtures * self.actions] * 2], -1)
        shape = (self.mixtures, self.actions)
        # Where weights begin small, σ begins at a third of the range.
        bounded = (log_std - 1.0).clamp(*LOG_STD_RANGE).unflatten(-1, shape)
        return Mixture(logits, mean.unflatten(-1, shape).tanh(), bounded)


def _of(values: Tensor, chosen: Tensor) -> Tensor:
    """(N, K, D), (N,) → (N, D)"""
    index = chosen[..., None, None].expand(*chosen.shape, 1, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)

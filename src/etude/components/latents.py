"""The stochastic part of a world model's state: groups of classes (DreamerV2, V3), or Gaussians (PlaNet, Dreamer).

Both are made of a network's outputs, drawn from noise that is given, and differentiable: classes by straight-through gradients
of their probabilities, Gaussians by their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional


class OneHot:
    """Independent choices, from logits (..., groups, classes); samples are one-hot, side by side (..., groups · classes)."""

    def __init__(self, logits: Tensor, unimix: float = 0.0) -> None:
        """`unimix` of the probability is spread evenly: no choice is ever impossible, and no divergence infinite."""
        probs = logits.float().softmax(-1)
        self.probs = probs * (1 - unimix) + unimix / logits.shape[-1] if unimix else probs
        self._log_probs: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """(..., groups, classes)"""
        if self._log_probs is None:  # by hand: a cached_property has a lock, which can't be compiled
            self._log_probs = self.probs.clamp(min=torch.finfo(torch.float32).tiny).log()
        return self._log_probs

    def draw(self, noise: Tensor) -> Tensor:
        """Return samples for uniform noise (..., groups): the class at which the cumulative probability passes it."""
        last = self.probs.shape[-1] - 1
        chosen = (self.probs.detach().cumsum(-1) <= noise.unsqueeze(-1)).sum(-1).clamp(max=last)  # sums may end below 1
        return self._straight_through(chosen)

    def mode(self) -> Tensor:
        """Return the likeliest class of each group."""
        return self._straight_through(self.probs.argmax(-1))

    def _straight_through(self, chosen: Tensor) -> Tensor:
        hot = one_hot(chosen, self.probs.shape[-1])
        return (hot + (self.probs - self.probs.detach())).flatten(-2)  # in this order exactly 0 or 1

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., groups · classes) → (...)"""
        return (sample * self.log_probs.flatten(-2)).sum(-1)

    def entropy(self) -> Tensor:
        """(...), summed over groups"""
        return -(self.probs * self.log_probs).sum((-1, -2))

    def kl(self, other: OneHot) -> Tensor:
        """KL(self || other), summed over groups: (...)"""
        return (self.probs * (self.log_probs - other.log_probs)).sum((-1, -2))

    def detach(self) -> OneHot:
        """Return the same distribution as numbers without gradients."""
        found = object.__new__(OneHot)
        found.probs, found._log_probs = self.probs.detach(), self.log_probs.detach()  # computed once for both
        return found


class Normal:
    """Independent normals with mean and standard deviation (..., D) of their own."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std

    def draw(self, noise: Tensor) -> Tensor:
        """Return samples for standard normal noise (..., D), differentiable."""
        return self.mean + self.std * noise

    def mode(self) -> Tensor:
        """Return the mean."""
        return self.mean

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., D) → (...)"""
        scaled = (sample - self.mean) / self.std
        return (-0.5 * scaled.square() - self.std.log() - HALF_LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """(...), summed over dimensions"""
        return (self.std.log() + 0.5 + HALF_LOG_2PI).sum(-1)

    def kl(self, other: Normal) -> Tensor:
        """KL(self || other), summed over dimensions: (...)"""
        ratio, apart = self.std / other.std, (self.mean - other.mean) / other.std
        return (0.5 * (ratio.square() + apart.square() - 1) - ratio.log()).sum(-1)

    def detach(self) -> Normal:
        """Return the same distribution as numbers without gradients."""
        return Normal(self.mean.detach(), self.std.detach())


HALF_LOG_2PI = 0.9189385332046727


class Latents(ABC):
    """A kind of stochastic state."""

    outputs: int
    """How many numbers of a network describe a distribution."""
    size: int
    """How many numbers a sample has."""
    noise: Literal["uniform", "normal"]
    """What a sample is drawn from."""
    noise_size: int
    """How many of these a sample takes."""

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Any:
        """Return the distribution that outputs (..., outputs) describe, in full precision."""

    @abstractmethod
    def stored(self, sample: Tensor) -> Tensor:
        """Return a sample (..., size) in the form in which a replay keeps it."""

    @abstractmethod
    def restored(self, stored: Tensor) -> Tensor:
        """Undo `stored`."""


class Categorical(Latents):
    """Groups of classes."""

    noise = "uniform"

    def __init__(self, groups: int, classes: int, unimix: float = 0.01) -> None:
        self.groups, self.classes, self.unimix = groups, classes, unimix
        self.outputs = self.size = groups * classes
        self.noise_size = groups

    def distribution(self, outputs: Tensor) -> OneHot:
        """(..., groups · classes)"""
        return OneHot(outputs.unflatten(-1, (self.groups, self.classes)), self.unimix)

    def stored(self, sample: Tensor) -> Tensor:
        """A byte for each group: which class it is. State that nothing was drawn for yet, all zeros, is one class too many."""
        groups = sample.detach().unflatten(-1, (self.groups, self.classes))
        return torch.where(groups.amax(-1) > 0, groups.argmax(-1), self.classes).to(torch.uint8)

    def restored(self, stored: Tensor) -> Tensor:
        """(..., groups) → (..., groups · classes)"""
        return one_hot(stored.long(), self.classes).flatten(-2)


class Gaussian(Latents):
    """Gaussians, whose standard deviation is never below `min_std`."""

    noise = "normal"

    def __init__(self, size: int, min_std: float = 0.1) -> None:
        self.size = self.noise_size = size
        self.outputs, self._min_std = 2 * size, min_std

    def distribution(self, outputs: Tensor) -> Normal:
        """(..., 2 · size)"""
        mean, std = outputs.float().chunk(2, -1)
        return Normal(mean, functional.softplus(std) + self._min_std)

    def stored(self, sample: Tensor) -> Tensor:
        """As it is."""
        return sample.detach()

    def restored(self, stored: Tensor) -> Tensor:
        """As it is."""
        return stored.float()


def one_hot(chosen: Tensor, classes: int) -> Tensor:
    """(...) → (..., classes); all zeros where the class is beyond the last. Unlike torch's own it asks the device nothing."""
    return (chosen.unsqueeze(-1) == torch.arange(classes, device=chosen.device)).float()


def balanced_kl(posterior: Any, prior: Any, free: float) -> tuple[Tensor, Tensor]:
    """Return how far the prior is from the posterior, to be moved towards it, and the other way round (DreamerV3): (...) each.

    dynamics        max(free, KL(sg(posterior) || prior))            teaches the prior
    representation  max(free, KL(posterior || sg(prior)))            keeps the posterior predictable

    What is below `free` nats, element by element, has no gradient.
    """
    return posterior.detach().kl(prior).clamp(min=free), posterior.kl(prior.detach()).clamp(min=free)

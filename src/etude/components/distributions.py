"""Action distributions as plain tensor functions with explicit generators, and the heads that make them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.compute.draws import exponential_like, normal_like
from etude.environments.spaces import finite_range, leaf_spaces
from etude.environments.vector import ACTION_MASK
from etude.errors import UserError

LOG_STD_RANGE = (-20.0, 2.0)
"""Of policies whose standard deviation is a network's output (Haarnoja et al. 2018)."""
SMOOTH_LOG_STD_RANGE = (-10.0, 2.0)
"""Of those where it never stops at a bound (Hansen et al. 2024)."""


class Distribution(Protocol):
    """What an algorithm needs of a distribution over actions."""

    def sample(self, generator: Generator) -> Tensor:
        """Draw one action per row."""
        ...

    def mode(self) -> Tensor:
        """Return the most likely action per row."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,) log-density of each row's action."""
        ...

    def entropy(self) -> Tensor:
        """(N,) entropy of each row."""
        ...


class Categorical:
    """One choice out of `A`, from logits (N, A); masked choices have probability 0.

    A mask that allows nothing forbids nothing: environments send one with the observation that an episode ended in, where no
    action follows, and what is computed of that row counts for nothing but must be a number.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self._forbidden: Tensor | None = None
        if mask is not None:
            forbidden = mask == 0
            self._forbidden = forbidden & ~forbidden.all(-1, keepdim=True)
            logits = logits.masked_fill(self._forbidden, -torch.inf)
        self.log_probs = logits.log_softmax(-1)

    def sample(self, generator: Generator) -> Tensor:
        """Draw by the exponential race: argmax p/E has the law of p and needs no cumulative sums."""
        noise = exponential_like(self.log_probs, generator)
        return (self.log_probs.exp() / noise).argmax(-1)

    def mode(self) -> Tensor:
        """Return the likeliest choice."""
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,)"""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """(N,), with 0 · log 0 = 0 for masked choices."""
        probability = self.log_probs.exp()
        # The gradient too must be 0 there, whatever flows back: no factor may be infinite, nor become so.
        return -(probability * self.log_probs.masked_fill(probability == 0, 0.0)).sum(-1)

    def greatest_entropy(self) -> float | Tensor:
        """Return the entropy of choosing among all that is allowed at random: one number, or with a mask one for each row."""
        if self._forbidden is None:
            return math.log(self.log_probs.shape[-1])
        return (~self._forbidden).sum(-1).to(self.log_probs.dtype).log()


class MultiCategorical:
    """Several independent choices, from logits and an optional mask (N, sum(sizes)); actions are (N, len(sizes))."""

    def __init__(self, logits: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> None:
        each = [None] * len(sizes) if mask is None else mask.split(list(sizes), dim=-1)
        self.parts = [Categorical(*part) for part in zip(logits.split(list(sizes), dim=-1), each, strict=True)]

    def sample(self, generator: Generator) -> Tensor:
        """Draw each choice in turn."""
        return torch.stack([part.sample(generator) for part in self.parts], dim=-1)

    def mode(self) -> Tensor:
        """Return the likeliest of each choice."""
        return torch.stack([part.mode() for part in self.parts], dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,)"""
        return torch.stack([part.log_prob(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self) -> Tensor:
        """(N,)"""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class Gaussian:
    """Independent normals per dimension, with mean (N, D) and log standard deviation (D,)."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def sample(self, generator: Generator) -> Tensor:
        """Draw (N, D)."""
        noise = normal_like(self.mean, generator)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        """Return the mean."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,)"""
        scaled = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled.square() - self.log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """(N,)"""
        one_row = (self.log_std + 0.5 * (1 + math.log(2 * math.pi))).sum(-1)
        return one_row.expand(self.mean.shape[:-1])


class SquashedGaussian:
    """A normal whose samples go through tanh into (-1, 1); mean and log standard deviation (N, D) depend on the observation."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def draw(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (N, D) for standard normal noise, differentiable, and their log-densities (N,)."""
        before = self.mean + self.log_std.exp() * noise
        normal = (-0.5 * noise.square() - self.log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * noise.shape[-1]
        return before.tanh(), normal - _log_slope(before)

    def sample(self, generator: Generator) -> Tensor:
        """Draw (N, D)."""
        return self.at(normal_like(self.mean, generator))

    def at(self, noise: Tensor) -> Tensor:
        """Return actions (N, D) for standard normal noise, differentiable."""
        return (self.mean + self.log_std.exp() * noise).tanh()

    def mode(self) -> Tensor:
        """Return what the mean becomes; the density's highest point lies elsewhere where it is squashed hard."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,); an action at the edge counts as one just inside it, where the density is still a number."""
        edge = 1 - torch.finfo(action.dtype).eps
        before = action.clamp(-edge, edge).atanh()
        return Gaussian(self.mean, self.log_std).log_prob(before) - _log_slope(before)

    def entropy(self) -> Tensor:
        """Not known in closed form."""
        raise NotImplementedError("a squashed Gaussian's entropy is estimated from the log-probabilities of its samples")


class Uniform:
    """Every action between bounds (N, D) alike: the density is one over the volume. Whole numbers are counted, not measured."""

    def __init__(self, low: Tensor, high: Tensor, *, whole: bool = False) -> None:
        self.low, self.high, self._whole = low, high, whole

    def sample(self, generator: Generator) -> Tensor:
        """Draw (N, D)."""
        uniform = torch.empty_like(self.low).uniform_(generator=generator)
        if self._whole:
            return torch.minimum((self.low + uniform * (self.high - self.low + 1)).floor(), self.high)
        return self.low + uniform * (self.high - self.low)

    def mode(self) -> Tensor:
        """Return the middle: none is likelier than another."""
        middle = (self.low + self.high) / 2
        return middle.floor() if self._whole else middle

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,): minus the logarithm of the volume; −inf outside of it."""
        inside = ((action >= self.low) & (action <= self.high)).all(-1)
        return torch.where(inside, -self.entropy(), -torch.inf)

    def entropy(self) -> Tensor:
        """(N,): the logarithm of the volume."""
        return (self.high - self.low + (1.0 if self._whole else 0.0)).log().sum(-1)


class Point:
    """All probability at one action (N, D)."""

    def __init__(self, action: Tensor) -> None:
        self.action = action

    def sample(self, generator: Generator) -> Tensor:
        """Return the action; nothing is drawn."""
        return self.action

    def mode(self) -> Tensor:
        """Return the action."""
        return self.action

    def log_prob(self, action: Tensor) -> Tensor:
        """(N,): the logarithm of a probability, not of a density: 0 at the action, -inf elsewhere."""
        return torch.where((action == self.action).all(-1), 0.0, -torch.inf)

    def entropy(self) -> Tensor:
        """(N,): none."""
        return torch.zeros(self.action.shape[:-1], device=self.action.device)


def _log_slope(before: Tensor) -> Tensor:
    """log of tanh's slope, summed over dimensions: log(1 - tanh²x) = 2 (log 2 - x - softplus(-2x)), finite everywhere."""
    return (2 * (math.log(2) - before - functional.softplus(-2 * before))).sum(-1)


class ActionHead(nn.Module):
    """Turns a network's outputs into a distribution, and the distribution's samples into environment actions."""

    size: int
    """How many outputs it needs of the network."""
    takes_mask: bool = True
    """Whether actions can be forbidden by a mask of as many entries as outputs."""

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Return the distribution that `outputs` (N, size) describe."""
        raise NotImplementedError

    def to_environment(self, sample: Tensor) -> Tensor:
        """Return what the environment is given for a sample."""
        return sample


class CategoricalHead(ActionHead):
    """For Discrete actions."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.size = int(space.n)

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Return a categorical distribution."""
        return Categorical(outputs, mask)


class MultiCategoricalHead(ActionHead):
    """For MultiDiscrete actions, and MultiBinary ones as choices out of two."""

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        super().__init__()
        self._shape = tuple(space.shape)
        count = int(np.prod(self._shape))
        self._sizes = space.nvec.flatten().tolist() if isinstance(space, spaces.MultiDiscrete) else [2] * count
        self.size = sum(self._sizes)

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Return one categorical per choice."""
        return MultiCategorical(outputs, self._sizes, None if mask is None else mask.reshape(outputs.shape))

    def to_environment(self, sample: Tensor) -> Tensor:
        """(N, choices) → (N, *space.shape)"""
        return sample.reshape(-1, *self._shape)


class GaussianHead(ActionHead):
    """For Box actions: a learned standard deviation that does not depend on the observation.

    The distribution lives on [-1, 1] where the space is bounded; samples are stretched to the bounds and clipped there.
    """

    takes_mask = False
    low: Tensor
    high: Tensor
    middle: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box, init_noise_std: float = 1.0, fixed_std: bool = False) -> None:
        super().__init__()
        self._shape = tuple(space.shape)
        self.size = int(np.prod(self._shape))
        self.log_std = nn.Parameter(torch.full((self.size,), math.log(init_noise_std)), requires_grad=not fixed_std)
        bounded = torch.as_tensor(finite_range(space))
        low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (space.low, space.high))
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("middle", torch.where(bounded, (low + high) / 2, 0.0), persistent=False)
        self.register_buffer("reach", torch.where(bounded, (high - low) / 2, 1.0), persistent=False)

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Return a diagonal Gaussian."""
        return Gaussian(outputs, self.log_std)

    def to_environment(self, sample: Tensor) -> Tensor:
        """(N, D) → (N, *space.shape), inside the bounds"""
        action = self.middle + self.reach * sample.reshape(-1, *self._shape)
        return torch.maximum(torch.minimum(action, self.high), self.low)


class BoundedHead(ActionHead):
    """For bounded Box actions: samples lie in [-1, 1] and are stretched to the bounds, which they never leave."""

    takes_mask = False
    per_action: int
    """How many outputs of the network each action dimension needs."""
    middle: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        if not finite_range(space).all():
            raise UserError(
                f"actions without bounds ({space}) can't be squashed into them; use an environment with bounds, or ppo"
            )
        self._shape = tuple(space.shape)
        self.actions = int(np.prod(self._shape))
        self.size = self.per_action * self.actions
        low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (space.low, space.high))
        self.register_buffer("middle", (low + high) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def to_environment(self, sample: Tensor) -> Tensor:
        """(N, D) in [-1, 1] → (N, *space.shape), inside the bounds"""
        return self.middle + self.reach * sample.clamp(-1, 1).reshape(-1, *self._shape)

    def from_environment(self, action: Tensor) -> Tensor:
        """(..., *space.shape) → (..., D) in [-1, 1]"""
        scaled = (action - self.middle) / self.reach.clamp_min(1e-12)
        return scaled.reshape(*scaled.shape[: scaled.ndim - len(self._shape)], self.actions).clamp(-1, 1)


class SquashedGaussianHead(BoundedHead):
    """Mean and standard deviation both depend on the observation."""

    per_action = 2

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> SquashedGaussian:
        """Return a squashed Gaussian."""
        mean, log_std = outputs.chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD_RANGE))


class SmoothGaussianHead(SquashedGaussianHead):
    """The same with a deviation that goes smoothly to its bounds, so that its gradient never stops there."""

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> SquashedGaussian:
        """Return a squashed Gaussian; it begins with a small deviation."""
        mean, unbounded = outputs.chunk(2, dim=-1)
        low, high = SMOOTH_LOG_STD_RANGE
        return SquashedGaussian(mean, low + (high - low) / 2 * (unbounded.tanh() + 1))


class DeterministicHead(BoundedHead):
    """One action for each observation, for policies that explore by noise from outside."""

    per_action = 1

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Point:
        """Return all probability at the squashed outputs."""
        return Point(outputs.tanh())


def check_mask(observation_space: gymnasium.Space[Any], head: ActionHead) -> None:
    """Raise UserError if observations carry an action mask that does not fit the actions."""
    mask = leaf_spaces(observation_space).get(ACTION_MASK)
    if mask is None:
        return
    if not head.takes_mask:
        raise UserError(f"observation '{ACTION_MASK}': continuous actions can't be masked")
    entries = int(np.prod(mask.shape or ()))
    if entries != head.size or isinstance(mask, spaces.Discrete | spaces.MultiDiscrete):
        raise UserError(f"observation '{ACTION_MASK}': must be a vector of {head.size} flags, one for each choice, not {mask}")


def make_head(space: gymnasium.Space[Any], *, init_noise_std: float = 1.0, fixed_std: bool = False) -> ActionHead:
    """Return the head that fits an action space."""
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(space)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return MultiCategoricalHead(space)
    if isinstance(space, spaces.Box):
        return GaussianHead(space, init_noise_std, fixed_std)
    raise UserError(f"no policy acts in {type(space).__name__} spaces; use Box, Discrete, MultiDiscrete or MultiBinary")

"""Actions as a world model sees them: one-hot, or on a scale where their bounds are ±1; and the policies that choose them."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.components.distributions import ActionHead, BoundedHead
from etude.components.latents import Normal, OneHot, one_hot
from etude.errors import UserError

STD_RANGE = (0.1, 1.0)


class WorldActions(ActionHead):
    """The head of a policy whose samples (N, actions) a world model reads. They are drawn from noise that is given."""

    actions: int
    """How many numbers an action has for the model."""
    noise: Literal["uniform", "normal"]
    """What an action is drawn from."""
    noise_size: int

    def from_environment(self, action: Tensor) -> Tensor:
        """Return what the model reads of an action of the environment's: (..., *space.shape) → (..., actions)"""
        raise NotImplementedError

    def disturbed(self, chosen: Tensor, noise: float, generator: Generator) -> Tensor:
        """Return actions (N, actions) with some chance in them, to explore by."""
        raise NotImplementedError


class ChosenActions(WorldActions):
    """Discrete actions, one-hot; `unimix` of the probability is spread evenly, so that none is ever given up."""

    takes_mask = False
    noise = "uniform"
    noise_size = 1

    def __init__(self, space: spaces.Discrete, unimix: float) -> None:
        super().__init__()
        self.size = self.actions = int(space.n)
        self._unimix = unimix

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Any:
        """(..., actions) → an `OneHot`"""
        return OneHot(outputs.unsqueeze(-2), self._unimix)

    def to_environment(self, sample: Tensor) -> Tensor:
        """(N, actions) → (N,), counted from 0"""
        return sample.argmax(-1)

    def from_environment(self, action: Tensor) -> Tensor:
        """(...) → (..., actions)"""
        return one_hot(action, self.actions)

    def disturbed(self, chosen: Tensor, noise: float, generator: Generator) -> Tensor:
        """Replace a share of them by any."""
        uniform = torch.empty(2, len(chosen), device=generator.device).uniform_(generator=generator)
        anything = one_hot((uniform[1] * self.actions).long().clamp(max=self.actions - 1), self.actions)
        return torch.where(uniform[0].unsqueeze(-1) < noise, anything, chosen)


class BoundedActions(BoundedHead, WorldActions):
    """Bounded continuous actions: a normal whose mean and standard deviation are bounded, and whose samples are not.

    What leaves the bounds is clipped on its way to the environment.
    """

    per_action = 2
    noise = "normal"

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.noise_size = self.actions

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Any:
        """(..., 2 · actions) → a `Normal`"""
        mean, std = outputs.float().chunk(2, -1)
        low, high = STD_RANGE
        return Normal(torch.tanh(mean), (high - low) * torch.sigmoid(std + 2) + low)

    def from_environment(self, action: Tensor) -> Tensor:
        """(..., *space.shape) → (..., actions)"""
        scaled = (action - self.middle) / self.reach.clamp(min=torch.finfo(torch.float32).tiny)
        return scaled.flatten(action.ndim - self.middle.ndim)

    def disturbed(self, chosen: Tensor, noise: float, generator: Generator) -> Tensor:
        """Add normal noise."""
        return chosen + noise * torch.empty_like(chosen).normal_(generator=generator)


def world_actions(space: gymnasium.Space[Any], unimix: float) -> ChosenActions | BoundedActions:
    """Return the head that fits an action space."""
    if isinstance(space, spaces.Discrete):
        return ChosenActions(space, unimix)
    if isinstance(space, spaces.Box):
        return BoundedActions(space)
    raise UserError(f"a world model acts in Box and Discrete spaces, not {type(space).__name__}; ppo takes any")

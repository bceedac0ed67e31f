"""Networks that say what each discrete action is worth: one pass, all actions; dueling or not, in distribution or not."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.layers import linear
from etude.components.value_distributions import ValueDistribution
from etude.environments.vector import Observation


class DuelingHead(nn.Module):
    """Two streams of features, one for the state's value and one for what each action adds to it (Wang et al. 2016).

        features ┬─ relu ─ V(s)
                 └─ relu ─ A(s, a)        Q(s, a) = V(s) + A(s, a) − mean over a of A(s, a)

    Without subtracting the mean, V and A could drift against each other.
    """

    def __init__(self, units: int, actions: int, size: int, generator: Generator) -> None:
        super().__init__()
        self._shape = (actions, size)
        self.value = linear(units, size, 1.0, generator)
        self.advantage = linear(units, actions * size, 1.0, generator)

    def forward(self, features: Tensor) -> Tensor:
        """(B, 2 · units) → (B, actions, size)"""
        of_value, of_advantage = features.relu().chunk(2, -1)
        advantage = self.advantage(of_advantage).unflatten(-1, self._shape)
        return self.value(of_value).unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)


class ActionValues(nn.Module):
    """A network with an output (or several) for each action, or with a dueling head on its outputs."""

    def __init__(
        self, network: nn.Module, actions: int, distribution: ValueDistribution, dueling: DuelingHead | None = None
    ) -> None:
        super().__init__()
        self.network, self.distribution, self.dueling = network, distribution, dueling
        self._shape = (actions, distribution.size)

    def forward(self, observation: Observation) -> Tensor:
        """(B, ...) → (B, actions, size)"""
        return self.shaped(self.network(observation))

    def shaped(self, outputs: Tensor) -> Tensor:
        """Return the network's outputs by action: (B, outputs) → (B, actions, size)."""
        return outputs.unflatten(-1, self._shape) if self.dueling is None else self.dueling(outputs)

    def values(self, outputs: Tensor) -> Tensor:
        """(B, actions, size) → (B, actions): expected returns."""
        return self.distribution.values(outputs)


def allowed(values: Tensor, observation: Observation) -> Tensor:
    """Return values (B, actions) with those of actions that the observation's mask forbids at −∞."""
    mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
    return values if mask is None else values.masked_fill(mask == 0, -torch.inf)


def of_action(outputs: Tensor, action: Tensor) -> Tensor:
    """Return what belongs to one action of each row: (B, actions, size), (B,) → (B, size)."""
    return outputs.gather(1, action[:, None, None].expand(-1, 1, outputs.shape[-1])).squeeze(1)

"""Outputs of its own on what another network has made of the observation: both train what they share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor, nn

from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.layers import Activation, output_layers
from etude.config.constraints import PositiveInt
from etude.environments.vector import Observation
from etude.errors import UserError


@dataclass(frozen=True)
class HeadConfig:
    """A head on another role's network: it reads what that one computes before its last layer."""

    type: str = "head"
    """The registered name of the network."""
    of: str = "actor"
    """The role whose network it stands on; it must be a cnn or an mlp."""
    hidden_dims: tuple[PositiveInt, ...] = ()
    """Units per layer of its own, before the outputs."""
    activation: Activation = "relu"
    """What follows each of these."""


class Head(nn.Module):
    """A few layers on another network's features. What it stands on is no part of it: those weights are the other's."""

    Config = HeadConfig

    def __init__(
        self, config: HeadConfig, trunk: nn.Module, output_size: int, *, generator: Generator, output_gain: float = 1.0
    ) -> None:
        super().__init__()
        if not isinstance(trunk, FeedForward):
            raise UserError(f"a head stands on a cnn or an mlp, and the {config.of} is a {type(trunk).__name__.lower()}")
        self._trunk = (trunk,)  # in a tuple, so that its weights are not counted as this network's too
        sizes = [trunk.feature_size, *config.hidden_dims]
        self.layers = output_layers(sizes, config.activation, output_size, output_gain, generator)

    @property
    def trunk(self) -> FeedForward:
        """The network it stands on."""
        return self._trunk[0]

    def forward(self, observation: Observation) -> Tensor:
        """(N, ...) → (N, output_size)"""
        return self.layers(self.trunk.features(observation))


def outputs_of_both(network: nn.Module, head: Head, observation: Observation) -> tuple[Tensor, Tensor]:
    """Return the outputs of a network and of the head on it, with what they share computed once."""
    assert isinstance(network, FeedForward)
    features = network.features(observation)
    return network.layers[-1](features), head.layers(features)

"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import gymnasium
from torch import Generator, Tensor, nn

from etude.components.networks.encoder import FlatEncoder
from etude.config.constraints import PositiveInt
from etude.environments.vector import Observation

Activation = Literal["relu", "tanh", "elu", "selu", "gelu", "silu", "leaky_relu", "identity"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
}


@dataclass(frozen=True)
class MLPConfig:
    """Fully connected layers."""

    type: str = "mlp"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (64, 64)
    """Units per hidden layer. Wider learns finer functions and costs time."""
    activation: Activation = "tanh"
    """What follows each hidden layer."""


class MLP(nn.Module):
    """An observation through fully connected layers to `output_size` numbers."""

    Config = MLPConfig

    def __init__(
        self,
        config: MLPConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = FlatEncoder(observation_space)
        sizes = [self.encoder.size, *config.hidden_dims]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            # Orthogonal with gain √2 in hidden layers and a small last layer: "What Matters in On-Policy RL", 3.2.
            layers += [_linear(inputs, outputs, 2**0.5, generator), ACTIVATIONS[config.activation]()]
        layers.append(_linear(sizes[-1], output_size, output_gain, generator))
        self.layers = nn.Sequential(*layers)

    def forward(self, observation: Observation) -> Tensor:
        """(N, ...) → (N, output_size)"""
        return self.layers(self.encoder(observation))


def _linear(inputs: int, outputs: int, gain: float, generator: Generator) -> nn.Linear:
    # Made without memory first: a plain nn.Linear would draw its weights from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer

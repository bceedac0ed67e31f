"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
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
        self.activation = config.activation
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


class HostMLP:
    """The same network in NumPy, on the same memory.

    For a handful of rows a forward pass is all dispatch, and NumPy's costs a third of torch's. Training sees every change at
    once, because the weights are shared, not copied.
    """

    def __init__(self, network: MLP) -> None:
        layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        self._weights = [layer.weight.detach().numpy().T for layer in layers]
        self._biases = [layer.bias.detach().numpy() for layer in layers]
        self._activate = _HOST_ACTIVATIONS[network.activation]

    @classmethod
    def of(cls, network: nn.Module, observation_space: gymnasium.Space[Any]) -> HostMLP | None:
        """Return the NumPy twin of a plain MLP on the CPU that reads one vector; None for anything else."""
        vector = isinstance(observation_space, gymnasium.spaces.Box) and len(observation_space.shape) == 1
        if not vector or type(network) is not MLP or network.activation not in _HOST_ACTIVATIONS:
            return None
        return cls(network) if next(network.parameters()).device.type == "cpu" else None

    def __call__(self, observation: Tensor) -> Tensor:
        """(N, inputs) → (N, outputs)"""
        values = observation.numpy()
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            values = self._activate(values @ weight + bias)
        return torch.from_numpy(values @ self._weights[-1] + self._biases[-1])


_HOST_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0.0)}


def _linear(inputs: int, outputs: int, gain: float, generator: Generator) -> nn.Linear:
    # Made without memory first: a plain nn.Linear would draw its weights from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer

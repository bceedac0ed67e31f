"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import ConvEncoderConfig, suits_convolution
from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import ACTIVATIONS, Activation, output_layers
from etude.config.constraints import Component, PositiveInt

__all__ = ["ACTIVATIONS", "MLP", "Activation", "HostMLP", "MLPConfig"]


@dataclass(frozen=True)
class MLPConfig:
    """Fully connected layers."""

    type: str = "mlp"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (64, 64)
    """Units per hidden layer. Wider learns finer functions and costs time."""
    activation: Activation = "tanh"
    """What follows each hidden layer."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of a Dict observation before the layers, by its key: {pixels: {type: cnn}, state: {type: mlp}}. A
    single observation has the key `observation`. Default: cnn for images in a Dict, flat for all else."""


class MLP(FeedForward):
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
        self.encoder = make_encoder(observation_space, config.encoders, _image_in_a_dict, generator)
        self.layers = output_layers(
            [self.encoder.size, *config.hidden_dims], config.activation, output_size, output_gain, generator
        )


def _image_in_a_dict(key: str, space: gymnasium.Space[Any]) -> ConvEncoderConfig | None:
    return ConvEncoderConfig() if key and suits_convolution(space) else None


class HostMLP:
    """The same network in NumPy, on the same memory.

    For a handful of rows a forward pass is all dispatch, and NumPy's costs a third of torch's. Training sees every change at
    once, because the weights are shared, not copied.
    """

    def __init__(self, network: MLP) -> None:
        layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        *self._hidden, self._last = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in layers]
        self._activate = _HOST_ACTIVATIONS[network.activation]

    @classmethod
    def of(cls, network: nn.Module, observation_space: gymnasium.Space[Any]) -> HostMLP | None:
        """Return the NumPy twin of a plain MLP on the CPU that reads one vector; None for anything else."""
        vector = isinstance(observation_space, gymnasium.spaces.Box) and len(observation_space.shape) == 1
        if (
            not vector
            or not np.issubdtype(np.dtype(observation_space.dtype), np.floating)
            or type(network) is not MLP
            or network.activation not in _HOST_ACTIVATIONS
        ):
            return None
        if type(network.encoder) is not FlatEncoder:
            return None
        return cls(network) if next(network.parameters()).device.type == "cpu" else None

    def __call__(self, observation: Tensor) -> Tensor:
        """(N, inputs) → (N, outputs)"""
        return torch.from_numpy(self.forward(observation.numpy()))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """(N, inputs) → (N, outputs), for those who go on in NumPy."""
        for weight, bias in self._hidden:
            values = values @ weight
            values += bias
            self._activate(values, values)
        values = values @ self._last[0]
        values += self._last[1]
        return values


def _relu(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.maximum(values, 0.0, out=out)


_HOST_ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {"tanh": np.tanh, "relu": _relu}

"""A plain MLP in NumPy with its gradient written out: for small networks on a CPU torch is all dispatch, forth and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.mlp import MLP
from etude.environments.vector import Observation

Array = np.ndarray[Any, Any]


def can_be_written(network: nn.Module) -> bool:
    """Whether a network is a plain MLP on the CPU whose activation has its slope written out."""
    if type(network) is not MLP or type(network.encoder) is not FlatEncoder or network.activation not in SLOPES:
        return False
    return all(parameter.device.type == "cpu" and parameter.dtype == torch.float32 for parameter in network.parameters())


class WrittenMLP:
    """The same network on the same memory, for batches whose gradient is wanted."""

    def __init__(self, network: MLP, gradients: Mapping[Tensor, Array]) -> None:
        """`gradients` is where those of its parameters go; a parameter that is not in there stays as it is."""
        self._encode = network.encoder
        self._activate, self._times_slope = ACTIVATIONS[network.activation], SLOPES[network.activation]
        linear = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        self._layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in linear]
        self._gradients = [(gradients.get(layer.weight), gradients.get(layer.bias)) for layer in linear]
        learnt = [k for k, pair in enumerate(self._gradients) if any(each is not None for each in pair)]
        self._first = min(learnt, default=len(linear))
        """The first layer that learns; gradients are wanted no further down."""
        self._values: list[Array] = []
        self._room: list[Array] = []
        self._ones = np.ones(0, np.float32)

    def features(self, observation: Observation) -> Array:
        """What goes into the first layer: an observation as rows of numbers."""
        if isinstance(observation, Tensor) and observation.ndim == 2 and observation.dtype == torch.float32:
            return observation.numpy()
        return self._encode(observation).numpy()

    def forward(self, inputs: Array) -> Array:
        """(B, inputs) → (B, outputs); what a gradient needs is kept until the next batch."""
        if not self._room or len(self._room[0]) != len(inputs):
            self._ones = np.ones(len(inputs), np.float32)
            self._room = [np.empty((len(inputs), len(bias)), np.float32) for _, bias in self._layers]
        self._values = [inputs]
        for number, ((weight, bias), room) in enumerate(zip(self._layers, self._room, strict=True), 1):
            np.matmul(self._values[-1], weight.T, out=room)
            np.add(room, bias, out=room)
            if number < len(self._layers):
                self._activate(room, room)
            self._values.append(room)
        return self._values[-1]

    def backward(self, gradient: Array) -> None:
        """Write the gradients of the parameters, from that of the outputs (B, outputs), once for each forward pass."""
        for number in range(len(self._layers) - 1, self._first - 1, -1):
            inputs, (of_weight, of_bias) = self._values[number], self._gradients[number]
            if of_weight is not None:
                np.matmul(gradient.T, inputs, out=of_weight)
            if of_bias is not None:
                np.matmul(self._ones, gradient, out=of_bias)  # sums as products do, faster and rounded less
            if number > self._first:
                gradient = gradient @ self._layers[number][0]
                self._times_slope(gradient, inputs)


def _relu(values: Array, out: Array) -> None:
    np.maximum(values, 0.0, out=out)


def _times_slope_of_relu(gradient: Array, outputs: Array) -> None:
    np.multiply(gradient, outputs > 0, out=gradient)


def _times_slope_of_tanh(gradient: Array, outputs: Array) -> None:
    """1 - tanh², from what tanh returned, which is written over."""
    np.multiply(outputs, outputs, out=outputs)
    np.subtract(1.0, outputs, out=outputs)
    np.multiply(gradient, outputs, out=gradient)


ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {"tanh": np.tanh, "relu": _relu}
SLOPES: dict[str, Callable[[Array, Array], None]] = {"tanh": _times_slope_of_tanh, "relu": _times_slope_of_relu}
"""What multiplies a gradient by an activation's slope, given its outputs."""

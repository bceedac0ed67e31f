"""Several critics in NumPy with their gradients written out: those of their weights, and of the action that they judge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from etude.components.critics import ACTION, SINGLE, BatchedMLP, with_action
from etude.components.networks.encoder import FlatEncoder, width
from etude.components.networks.layers import ACTIVATIONS as MODULES
from etude.components.networks.mlp import MLP
from etude.components.networks.written_mlp import ACTIVATIONS, SLOPES, Array, WrittenMLP
from etude.components.networks.written_mlp import can_be_written as is_plain
from etude.environments.vector import Observation


def can_be_written(network: nn.Module) -> bool:
    """Whether a network has a twin in NumPy: a plain MLP, or several as one that read a vector, or one and an action."""
    if type(network) is not BatchedMLP:
        return is_plain(network)
    encoder = network.encoder
    reads = type(encoder) is FlatEncoder and set(encoder._parts) in ({""}, {ACTION, SINGLE})
    on_host = all(parameter.device.type == "cpu" and parameter.dtype == torch.float32 for parameter in network.parameters())
    return reads and on_host and _activation(network) is not None


def written_twin(network: nn.Module, gradients: Mapping[Tensor, Array]) -> WrittenMLP | WrittenCritics:
    """Return a network's twin, which writes the gradients of its parameters."""
    if isinstance(network, BatchedMLP):
        return WrittenCritics(network, gradients)
    assert isinstance(network, MLP)
    return WrittenMLP(network, gradients)


class WrittenCritics:
    """The same critics on the same memory: (B, inputs) → (E, B, outputs)."""

    def __init__(self, network: BatchedMLP, gradients: Mapping[Tensor, Array]) -> None:
        """`gradients` is where those of its parameters go; a parameter that is not in there stays as it is."""
        self._encode = network.encoder
        name = _activation(network)
        assert name is not None
        self._activate, self._times_slope = ACTIVATIONS[name], SLOPES[name]
        pairs = [*zip(network.weights, network.biases, strict=True)]
        self._layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in pairs]
        self._gradients = [(gradients.get(weight), gradients.get(bias)) for weight, bias in pairs]
        self._learns = any(each is not None for pair in self._gradients for each in pair)
        self._values: list[Array] = []
        self._room: list[Array] = []
        self.of_action, begin = slice(0, 0), 0
        for key, part in network.encoder._parts.items():
            if key == ACTION:
                self.of_action = slice(begin, begin + width(part))
            begin += width(part)

    def features(self, observation: Observation, action: Tensor | None = None) -> Array:
        """What goes into the first layer, (B, inputs)."""
        return self._encode(observation if action is None else with_action(observation, action)).numpy()

    def forward(self, inputs: Array) -> Array:
        """(B, inputs) → (E, B, outputs); what a gradient needs is kept until the next batch."""
        if not self._room or self._room[0].shape[1] != len(inputs):
            self._room = [np.empty((len(bias), len(inputs), bias.shape[-1]), np.float32) for _, bias in self._layers]
        self._values = [inputs]
        for number, ((weight, bias), room) in enumerate(zip(self._layers, self._room, strict=True), 1):
            np.matmul(self._values[-1], weight, out=room)
            np.add(room, bias, out=room)
            if number < len(self._layers):
                self._activate(room, room)
            self._values.append(room)
        return self._values[-1]

    def backward(self, gradient: Array) -> None:
        """Write the gradients of the parameters, from that of the outputs (E, B, outputs), once for each forward pass."""
        for number in range(len(self._layers) - 1, -1, -1):
            inputs, (of_weight, of_bias) = self._values[number], self._gradients[number]
            assert of_weight is not None
            assert of_bias is not None
            np.matmul(np.swapaxes(inputs, -1, -2), gradient, out=of_weight)
            np.add.reduce(gradient, 1, out=of_bias[:, 0])
            if number > 0:
                gradient = self._through(number, gradient)

    def of_inputs(self, gradient: Array) -> Array:
        """Return the gradient of the inputs (B, inputs), that of all critics together; none of a parameter is written."""
        for number in range(len(self._layers) - 1, 0, -1):
            gradient = self._through(number, gradient)
        return np.matmul(gradient, np.swapaxes(self._layers[0][0], -1, -2)).sum(0)

    def _through(self, number: int, gradient: Array) -> Array:
        gradient = np.matmul(gradient, np.swapaxes(self._layers[number][0], -1, -2))
        self._times_slope(gradient, self._values[number])
        return gradient


def _activation(network: BatchedMLP) -> str | None:
    return next((name for name in SLOPES if type(network.activate) is MODULES[name]), None)

"""Layers whose first weights come from a generator that is given, never from the global one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, TypeVar

import torch
from torch import Generator, nn

Activation = Literal["relu", "tanh", "elu", "selu", "gelu", "silu", "mish", "leaky_relu", "identity"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
}
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d, nn.ConvTranspose2d)
Module = TypeVar("Module", bound=nn.Module)
HIDDEN_GAIN = 2**0.5
"""Orthogonal with gain √2 in hidden layers, and a small last one: "What Matters in On-Policy RL", 3.2."""


def linear(inputs: int, outputs: int, gain: float, generator: Generator) -> nn.Linear:
    """Return a fully connected layer, orthogonal with zero biases."""
    # Made without memory first: a plain nn.Linear would draw its weights from the global generator.
    return _orthogonal(with_memory(nn.Linear(inputs, outputs, device="meta")), gain, generator)


def convolution(inputs: int, outputs: int, kernel: int, stride: int, generator: Generator) -> nn.Conv2d:
    """Return a convolution of a hidden layer, orthogonal with zero biases."""
    layer = with_memory(nn.Conv2d(inputs, outputs, kernel, stride, device="meta"))
    return _orthogonal(layer, HIDDEN_GAIN, generator)


def transposed_convolution(
    inputs: int, outputs: int, gain: float, generator: Generator, *, kernel: int = 4, padding: int = 1
) -> nn.ConvTranspose2d:
    """Return a transposed convolution that doubles width and height (a kernel of 4), orthogonal with zero biases."""
    layer = with_memory(nn.ConvTranspose2d(inputs, outputs, kernel, stride=2, padding=padding, device="meta"))
    return _orthogonal(layer, gain, generator)


def with_memory(layer: Module) -> Module:
    """Give a layer that was made without memory some, not filled yet; torch's `to_empty` imports a computer algebra for it."""
    for name, parameter in [*layer.named_parameters(recurse=False)]:
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer


def hidden_layers(sizes: Sequence[int], activation: str, generator: Generator) -> list[nn.Module]:
    """Return fully connected layers from `sizes[0]` inputs to `sizes[-1]` units, an activation after each."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, HIDDEN_GAIN, generator), ACTIVATIONS[activation]()]
    return layers


def output_layers(sizes: Sequence[int], activation: str, outputs: int, gain: float, generator: Generator) -> nn.Sequential:
    """Return hidden layers and a last one with this gain."""
    return nn.Sequential(*hidden_layers(sizes, activation, generator), linear(sizes[-1], outputs, gain, generator))


def _orthogonal(layer: Layer, gain: float, generator: Generator) -> Layer:
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer

"""Fully connected networks whose layers are normalised, and latents on simplices (Hansen et al. 2024).

    hidden layer   linear → dropout (the first) → layer norm → activation
    last layer     linear; or linear → layer norm → a softmax over each group of outputs (SimNorm)

A latent of such groups can neither grow nor vanish, whatever a dynamics network makes of it again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components.networks.conv_encoder import convolution_for
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import ACTIVATIONS, Activation, with_memory
from etude.config.constraints import Bounds, Component, PositiveInt, at_least
from etude.environments.vector import Observation
from etude.errors import UserError

USUAL_LAYERS = (256, 256)
FIRST_STD = 0.02
"""Of the first weights, a normal distribution that is cut at ±2 (nowhere near)."""


@dataclass(frozen=True)
class NormedMLPConfig:
    """Fully connected layers with a layer norm before each activation."""

    type: str = "normed_mlp"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] | None = None
    """Units per hidden layer. Wider learns finer functions and costs time. Default: what the algorithm says, or [256, 256]."""
    activation: Activation = "mish"
    """What follows each hidden layer."""
    dropout: Annotated[float, Bounds(low=0, high=0.9)] = 0.0
    """Share of the first layer's outputs that are left out at random while learning. More keeps ensembles apart."""
    simplex: Annotated[int, at_least(2)] | None = None
    """Make each group of so many outputs a softmax, after a layer norm: a latent that can't grow. Null: plain numbers."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of an observation before the layers, by its key; a single observation has the key `observation`.
    Default: cnn for images, flat for all else."""


class NormedMLP(FeedForward):
    """An observation through normalised layers to `output_size` numbers."""

    Config = NormedMLPConfig

    def __init__(
        self,
        config: NormedMLPConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        if config.simplex is not None and output_size % config.simplex:
            raise UserError(
                f"simplex={config.simplex}: {output_size} outputs can't be divided into groups of {config.simplex}; "
                "choose a divisor, or null"
            )
        self.encoder = make_encoder(observation_space, config.encoders, convolution_for, generator)
        sizes = [self.encoder.size, *(USUAL_LAYERS if config.hidden_dims is None else config.hidden_dims)]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            share = 0.0 if layers else config.dropout
            layers.append(NormedLinear(inputs, outputs, ACTIVATIONS[config.activation](), generator, dropout=share))
        if config.simplex is None:
            layers.append(_begin(nn.Linear(sizes[-1], output_size, device="meta"), generator, output_gain))
        else:
            layers.append(NormedLinear(sizes[-1], output_size, SimNorm(config.simplex), generator))
        self.layers = nn.Sequential(*layers)


class NormedLinear(nn.Linear):
    """A linear layer, perhaps dropout, a layer norm and an activation."""

    def __init__(self, inputs: int, outputs: int, activate: nn.Module, generator: Generator, *, dropout: float = 0.0) -> None:
        super().__init__(inputs, outputs, device="meta")
        _begin(self, generator)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.norm = nn.LayerNorm(outputs)
        self.activate = activate

    def forward(self, input: Tensor) -> Tensor:
        """(..., inputs) → (..., outputs)"""
        values = super().forward(input)
        return self.activate(self.norm(values if self.dropout is None else self.dropout(values)))


class SimNorm(nn.Module):
    """Makes each group of numbers a softmax (simplicial normalisation)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, values: Tensor) -> Tensor:
        """(..., groups · size) → the same"""
        return values.unflatten(-1, (-1, self.size)).softmax(-1).flatten(-2)


class BatchedNormedMLP(nn.Module):
    """Networks of one shape as one: weights (E, inputs, outputs), a single batched product and norm a layer."""

    def __init__(self, members: Sequence[NormedMLP]) -> None:
        super().__init__()
        self.encoder = members[0].encoder
        alike: list[tuple[Any, ...]] = list(zip(*(member.layers for member in members), strict=True))
        self.weights = nn.ParameterList(torch.stack([layer.weight.detach().T for layer in each]) for each in alike)
        self.biases = nn.ParameterList(torch.stack([layer.bias.detach()[None] for layer in each]) for each in alike)
        hidden = alike[:-1]
        self.scales = nn.ParameterList(torch.stack([layer.norm.weight.detach()[None] for layer in each]) for each in hidden)
        self.shifts = nn.ParameterList(torch.stack([layer.norm.bias.detach()[None] for layer in each]) for each in hidden)
        self.dropout = hidden[0][0].dropout if hidden else None
        self.activate = hidden[0][0].activate if hidden else nn.Identity()

    @staticmethod
    def fits(members: Sequence[nn.Module]) -> bool:
        """Whether networks can be computed so: without encoders that learn, and with plain numbers at the end."""
        return len(members) > 1 and all(
            type(member) is NormedMLP
            and not list(member.encoder.parameters())
            and not isinstance(member.layers[-1], NormedLinear)
            for member in members
        )

    def forward(self, observation: Observation, chosen: Tensor | None = None) -> Tensor:
        """(*batch, ...) → (E, *batch, outputs); of the `chosen` members alone where these are given, by number."""
        seen = self.encoder(observation)
        weights, biases, scales, shifts = [
            [part if chosen is None else part.index_select(0, chosen) for part in parts]
            for parts in (self.weights, self.biases, self.scales, self.shifts)
        ]  # lists by comprehension: torch 2.11 can compile neither a generator nor [*parts] here
        values = seen.reshape(-1, seen.shape[-1]).expand(len(weights[0]), -1, -1)
        for layer, (scale, shift) in enumerate(zip(scales, shifts, strict=True)):
            values = torch.baddbmm(biases[layer], values, weights[layer])
            values = self.dropout(values) if layer == 0 and self.dropout is not None else values
            values = self.activate(torch.addcmul(shift, functional.layer_norm(values, values.shape[-1:]), scale))
        values = torch.baddbmm(biases[-1], values, weights[-1])
        return values.view(len(values), *seen.shape[:-1], values.shape[-1])


def _begin(layer: nn.Linear, generator: Generator, gain: float = 1.0) -> nn.Linear:
    """Give a layer that was made without memory its first weights."""
    with_memory(layer)
    nn.init.trunc_normal_(layer.weight, std=FIRST_STD, generator=generator)
    with torch.no_grad():
        layer.weight.mul_(gain)
    nn.init.zeros_(layer.bias)
    return layer

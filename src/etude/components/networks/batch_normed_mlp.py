"""Fully connected networks with batch norm before every layer, as CrossQ's critics have them (Bhatt et al. 2024).

    BN → [ linear → activation → BN ] × layers → linear

Statistics are taken of whole batches while learning, and of none while acting: what learns by two observations a transition
must show it both in one batch (algorithms that do: flash_sac).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import gymnasium
from torch import Generator, nn

from etude.components.networks.conv_encoder import convolution_for
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import ACTIVATIONS, HIDDEN_GAIN, Activation, linear
from etude.components.networks.residual_mlp import MOMENTUM
from etude.config.constraints import Component, PositiveInt


@dataclass(frozen=True)
class BatchNormedMLPConfig:
    """Fully connected layers with a batch norm before each."""

    type: str = "batch_normed_mlp"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (256, 256)
    """Units per hidden layer. Wider learns finer functions and costs time; CrossQ's critics have 2048 each."""
    activation: Activation = "relu"
    """What follows each hidden layer."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of an observation before the layers, by its key; a single observation has the key `observation`.
    Default: cnn for images, flat for all else."""


class BatchNormedMLP(FeedForward):
    """An observation through normalised layers to `output_size` numbers."""

    Config = BatchNormedMLPConfig

    def __init__(
        self,
        config: BatchNormedMLPConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config.encoders, convolution_for, generator)
        sizes = [self.encoder.size, *config.hidden_dims]
        layers: list[nn.Module] = [nn.BatchNorm1d(sizes[0], momentum=MOMENTUM)]
        for inputs, outputs in pairwise(sizes):
            layers += [linear(inputs, outputs, HIDDEN_GAIN, generator), ACTIVATIONS[config.activation]()]
            layers.append(nn.BatchNorm1d(outputs, momentum=MOMENTUM))
        self.layers = nn.Sequential(*layers, linear(sizes[-1], output_size, output_gain, generator))

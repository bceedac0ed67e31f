"""Fully connected layers, each with RMSNorm and SiLU: the heads of a world model, as in DreamerV3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
from torch import Generator, nn

from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.normed_layers import fan_in_linear, normed_layers
from etude.config.constraints import NonNegativeInt, PositiveInt

USUAL_WIDTH = 256


@dataclass(frozen=True)
class WorldMLPConfig:
    """Fully connected layers with RMSNorm and SiLU."""

    type: str = "world_mlp"
    """The registered name of the network."""
    layers: NonNegativeInt = 3
    """Hidden layers."""
    units: PositiveInt | None = None
    """Units of each. Default: as wide as the algorithm's other networks, or 256."""


class WorldMLP(FeedForward):
    """An observation through normed layers to `output_size` numbers."""

    Config = WorldMLPConfig

    def __init__(
        self,
        config: WorldMLPConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder, units = FlatEncoder(observation_space), config.units or width or USUAL_WIDTH
        inputs = units if config.layers else self.encoder.size
        last = fan_in_linear(inputs, output_size, generator, output_gain)
        self.layers = nn.Sequential(*normed_layers(self.encoder.size, units, config.layers, generator), last)

"""No network at all: what is observed is what it says, for algorithms that would encode it first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import suits_convolution
from etude.components.networks.encoder import FlatEncoder
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation
from etude.errors import UserError


@dataclass(frozen=True)
class IdentityConfig:
    """The observation itself, as one vector."""

    type: str = "identity"
    """The registered name of the network."""


class Identity(nn.Module):
    """Passes an observation on: boxes flat, discrete values one-hot, the parts of a Dict side by side. It learns nothing."""

    Config = IdentityConfig

    def __init__(
        self,
        config: IdentityConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        for name, part in leaf_spaces(observation_space).items():
            if suits_convolution(part):
                which = f"'{name}' is" if name else "the observation is"
                raise UserError(f"type=identity passes vectors on as they are, and {which} a picture; use normed_mlp, or a cnn")
        self.encoder = FlatEncoder(observation_space)
        if self.encoder.size != output_size:
            raise UserError(f"type=identity: {self.encoder.size} numbers are observed, where {output_size} are needed")

    def forward(self, observation: Observation) -> Tensor:
        """(*batch, ...) → (*batch, output_size)"""
        return self.encoder(observation)

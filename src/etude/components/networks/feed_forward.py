"""Networks that are an encoder and layers on it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from etude.environments.vector import Observation


class FeedForward(nn.Module):
    """What an encoder makes of an observation, through layers to the outputs. Heads may stand on it."""

    encoder: Any
    layers: nn.Sequential

    def forward(self, observation: Observation) -> Tensor:
        """(N, ...) → (N, output_size)"""
        return self.layers(self.encoder(observation))

    @property
    def feature_size(self) -> int:
        """How many numbers go into the last layer."""
        return self.layers[-1].in_features  # type: ignore[return-value] # a linear layer's

    def features(self, observation: Observation) -> Tensor:
        """What goes into the last layer: (N, ...) → (N, feature_size)"""
        return self.layers[:-1](self.encoder(observation))

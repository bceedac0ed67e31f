"""From features back to an observation: every part of a space reconstructed by layers of its own.

Pictures grow from a small grid, twice as wide and high with each transposed convolution, and are cut to size at the end:

    features ─→ (channels[0], 8, 8) ─→ (channels[1], 16, 16) ─→ … ─→ (picture's channels, 64, 64)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import Layout, image_sizes, is_channels_last, is_image
from etude.components.networks.encoder import FlatEncoder, width
from etude.components.networks.layers import ACTIVATIONS, HIDDEN_GAIN, Activation, output_layers, transposed_convolution
from etude.config.constraints import PositiveInt
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation


@dataclass(frozen=True)
class DecoderConfig:
    """Features to a vector by fully connected layers, to a picture by transposed convolutions; a Dict part by part."""

    type: str = "decoder"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (256,)
    """Units per fully connected layer, for each part of a space."""
    activation: Activation = "relu"
    """What follows each hidden layer."""
    channels: tuple[PositiveInt, ...] = (128, 64, 32)
    """Filters of pictures, from the smallest grid on; each step doubles width and height. Must not be empty."""
    layout: Layout = "auto"
    """Pictures: chw (channels first), hwc (channels last), or auto: whichever of the two sizes is smaller."""

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("channels must have at least one entry")


class DecoderNetwork(nn.Module, ABC):
    """A network whose output has the form of a space. One of your own derives from it."""

    @abstractmethod
    def forward(self, features: Observation) -> Observation:
        """(*batch, ...) → (*batch, *shape) of the space, or a dict of these; discrete values as a logit for each choice."""


class Decoder(DecoderNetwork):
    """Reconstructs each part of a space by itself. Pictures of bytes are on the scale [0, 1] that encoders see."""

    Config = DecoderConfig

    def __init__(
        self,
        config: DecoderConfig,
        input_space: gymnasium.Space[Any],
        output_space: gymnasium.Space[Any],
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = FlatEncoder(input_space)
        leaves = {key: space for key, space in leaf_spaces(output_space).items() if key != ACTION_MASK}
        self._keys, self.parts = tuple(leaves), nn.ModuleList()
        for key, space in leaves.items():
            # A matrix among other parts is more likely a table than a picture.
            kind = _Picture if is_image(space) and (not key or len(space.shape or ()) > 2) else _Values
            self.parts.append(kind(config, self.encoder.size, space, generator, output_gain))

    def forward(self, features: Observation) -> Observation:
        """(*batch, ...) → (*batch, *shape), or a dict of these by key"""
        seen = self.encoder(features)
        made = {key: part(seen) for key, part in zip(self._keys, self.parts, strict=True)}
        return made.get("", made)


class _Values(nn.Module):
    """Numbers of a Box, or logits of discrete values."""

    def __init__(
        self, config: DecoderConfig, inputs: int, space: gymnasium.Space[Any], generator: Generator, gain: float
    ) -> None:
        super().__init__()
        self._shape = tuple(space.shape or ()) if isinstance(space, spaces.Box) else (width(space),)
        self.layers = output_layers([inputs, *config.hidden_dims], config.activation, width(space), gain, generator)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features).unflatten(-1, self._shape) if self._shape else self.layers(features).squeeze(-1)


class _Picture(nn.Module):
    """An image, or a stack of them, in the layout of its space."""

    def __init__(
        self, config: DecoderConfig, inputs: int, space: gymnasium.Space[Any], generator: Generator, gain: float
    ) -> None:
        super().__init__()
        self._shape = tuple(space.shape or ())
        self._frames = self._shape[0] if len(self._shape) == 4 else 1
        self._channels_last = len(self._shape) == 2 or is_channels_last(self._shape[-3:], config.layout)
        self._height, self._width, channels = image_sizes(self._shape, self._channels_last)
        doubled = 2 ** len(config.channels)
        self._grid = (config.channels[0], math.ceil(self._height / doubled), math.ceil(self._width / doubled))
        sizes = [inputs, *config.hidden_dims]
        self.layers = output_layers(sizes, config.activation, math.prod(self._grid), HIDDEN_GAIN, generator)
        filters, growing = (*config.channels, self._frames * channels), []
        gains = [HIDDEN_GAIN] * (len(config.channels) - 1) + [gain]
        for (before, after), each in zip(pairwise(filters), gains, strict=True):
            growing += [ACTIVATIONS[config.activation](), transposed_convolution(before, after, each, generator)]
        self.growing = nn.Sequential(*growing)

    def forward(self, features: Tensor) -> Tensor:
        """(*batch, inputs) → (*batch, *shape)"""
        batch = features.shape[:-1]
        pixels = self.growing(self.layers(features).reshape(-1, *self._grid))[..., : self._height, : self._width]
        frames = pixels.unflatten(1, (self._frames, -1))  # (B, frames, channels, height, width)
        if self._channels_last:
            frames = frames.permute(0, 1, 3, 4, 2)
        return frames.reshape(*batch, *self._shape)

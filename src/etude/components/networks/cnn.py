"""Convolutional networks."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import gymnasium
from torch import Generator

from etude.components.networks.conv_encoder import ConvEncoderConfig, is_image
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import output_layers
from etude.config.constraints import Component, PositiveInt
from etude.environments.spaces import leaf_spaces
from etude.errors import UserError


@dataclass(frozen=True)
class CNNConfig(ConvEncoderConfig):
    """Convolutions over every image of an observation, then fully connected layers over all of it."""

    type: str = "cnn"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (512,)
    """Units per fully connected layer after the convolutions; [] goes from them straight to the outputs."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of a Dict observation, by its key, where it should not be this network's convolutions (images) or
    the values as they are (all else)."""


class CNN(FeedForward):
    """An observation with images through convolutions and fully connected layers to `output_size` numbers."""

    Config = CNNConfig

    def __init__(
        self,
        config: CNNConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        if not any(is_image(part) for part in leaf_spaces(observation_space).values()):
            raise UserError(f"a cnn needs an image to look at, and observations are {observation_space}; use an mlp")
        own = {item.name: getattr(config, item.name) for item in fields(ConvEncoderConfig)}
        convolutions = ConvEncoderConfig(**{**own, "type": "cnn", "hidden_dims": ()})

        def default(key: str, space: gymnasium.Space[Any]) -> ConvEncoderConfig | None:
            # A matrix among other parts is more likely a table than a picture.
            return convolutions if is_image(space) and (not key or len(space.shape or ()) > 2) else None

        self.encoder = make_encoder(observation_space, config.encoders, default, generator)
        self.layers = output_layers(
            [self.encoder.size, *config.hidden_dims], config.activation, output_size, output_gain, generator
        )

"""What a world model reads of observations (DreamerV3): pictures by convolutions, all else by normed layers on its symlog.

pictures    conv 5×5 ─→ max-pool 2×2 ─→ RMSNorm ─→ SiLU, four times: 64 × 64 pixels become 4 × 4       ┐
                                                                                                        ├─→ linear
vectors     symlog ─→ normed layers                                                                     ┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import Layout, image_sizes, is_channels_last, is_image
from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.normed_layers import NormedChannels, fan_in_convolution, fan_in_linear, normed_layers
from etude.components.networks.world_mlp import USUAL_WIDTH
from etude.components.two_hot import symlog
from etude.config.constraints import PositiveInt
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation

GROWTH = (2, 3, 4, 4)
"""Channels after each convolution, in units of `depth`."""
KERNEL = 5
SMALLEST_PICTURE = 16
"""Pixels a side, below which a matrix is a table of numbers."""


@dataclass(frozen=True)
class WorldEncoderConfig:
    """Pictures by convolutions with max-pooling, all else by normed layers on its symlog; a Dict by both."""

    type: str = "world_encoder"
    """The registered name of the network."""
    layers: PositiveInt = 3
    """Hidden layers for vectors."""
    units: PositiveInt | None = None
    """Units of each. Default: as wide as the algorithm's other networks, or 256."""
    depth: PositiveInt | None = None
    """Channels of pictures, two to four times as many. Default: a sixteenth of the units."""
    layout: Layout = "auto"
    """Pictures: chw (channels first), hwc (channels last), or auto: whichever of the two sizes is smaller."""


def is_picture(space: gymnasium.Space[Any]) -> bool:
    """Whether a world model sees a space as a picture: one with channels, and no smaller than 16 pixels a side."""
    shape = tuple(space.shape or ())
    if not is_image(space) or len(shape) < 3:
        return False
    channels, *sides = sorted(shape[-3:])
    return min(sides) >= SMALLEST_PICTURE and channels <= SMALLEST_PICTURE


def parts_of(space: gymnasium.Space[Any]) -> dict[str, gymnasium.Space[Any]]:
    """Return the parts of an observation that a world model reads, by name."""
    return {name: part for name, part in leaf_spaces(space).items() if name != ACTION_MASK}


class WorldEncoder(nn.Module):
    """Observations to `output_size` numbers, without a norm or activation after the last layer."""

    Config = WorldEncoderConfig

    def __init__(
        self,
        config: WorldEncoderConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
        width: int | None = None,
    ) -> None:
        super().__init__()
        units = config.units or width or USUAL_WIDTH
        parts, depth = parts_of(observation_space), config.depth or max(4, units // 16)
        self._pictures = tuple(name for name, part in parts.items() if is_picture(part))
        self._vectors = tuple(name for name in parts if name not in self._pictures)
        self.pictures = nn.ModuleList(_Picture(parts[name], depth, config.layout, generator) for name in self._pictures)
        self.flat = nn.ModuleList(FlatEncoder(parts[name]) for name in self._vectors)
        size = sum(int(picture.size) for picture in self.pictures)  # type: ignore[arg-type] # a _Picture's
        numbers = sum(int(flat.size) for flat in self.flat)  # type: ignore[arg-type] # an encoder's
        self.hidden = normed_layers(numbers, units, config.layers, generator) if numbers else None
        self.out = fan_in_linear(size + (units if numbers else 0), output_size, generator, output_gain)

    def forward(self, observation: Observation) -> Tensor:
        """(*batch, ...) → (*batch, output_size)"""
        parts = observation if isinstance(observation, dict) else {"": observation}
        features = [picture(parts[name]) for name, picture in zip(self._pictures, self.pictures, strict=True)]
        if self.hidden is not None:
            numbers = [flat(parts[name]) for name, flat in zip(self._vectors, self.flat, strict=True)]
            features.append(self.hidden(symlog(torch.cat(numbers, -1))))
        return self.out(torch.cat(features, -1))


class _Picture(nn.Module):
    def __init__(self, space: gymnasium.Space[Any], depth: int, layout: Layout, generator: Generator) -> None:
        super().__init__()
        self.shape = PictureShape(space, layout)
        layers: list[nn.Module] = []
        channels, height, width = self.shape.channels, self.shape.height, self.shape.width
        for growth in GROWTH:
            pool = nn.MaxPool2d(2, ceil_mode=True)
            layers += [fan_in_convolution(channels, growth * depth, KERNEL, generator), pool, NormedChannels(growth * depth)]
            channels, height, width = growth * depth, -(-height // 2), -(-width // 2)
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.size = channels * height * width

    def forward(self, pictures: Tensor) -> Tensor:
        """(*batch, *shape) → (*batch, size)"""
        channels_first, batch = self.shape.channels_first(pictures)
        return self.layers(channels_first - 0.5).reshape(*batch, self.size)


class PictureShape:
    """How the pictures of a space lie in memory: (H, W, C), (C, H, W), or several of these stacked."""

    def __init__(self, space: gymnasium.Space[Any], layout: Layout) -> None:
        self.shape = tuple(space.shape or ())
        self._frames = self.shape[0] if len(self.shape) == 4 else 1
        self._channels_last = is_channels_last(self.shape[-3:], layout)
        self.height, self.width, each = image_sizes(self.shape, self._channels_last)
        self.channels = self._frames * each

    def channels_first(self, pictures: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """(*batch, *shape) → (B, channels, height, width) with bytes on a scale from 0 to 1, and the batch's dimensions"""
        batch = tuple(pictures.shape[: pictures.ndim - len(self.shape)])
        frames = pictures.reshape(-1, self._frames, *self.shape[-3:])
        frames = frames.permute(0, 1, 4, 2, 3) if self._channels_last else frames
        scaled = frames.float() / 255.0 if pictures.dtype == torch.uint8 else frames.float()
        return scaled.flatten(1, 2), batch

    def as_space(self, pictures: Tensor, batch: tuple[int, ...]) -> Tensor:
        """(B, channels, height, width) → (*batch, *shape)"""
        frames = pictures.unflatten(1, (self._frames, -1))
        frames = frames.permute(0, 1, 3, 4, 2) if self._channels_last else frames
        return frames.reshape(*batch, *self.shape)

"""Images to features, by convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.components.networks.layers import ACTIVATIONS, Activation, convolution, hidden_layers
from etude.config.constraints import PositiveInt
from etude.errors import UserError

Layout = Literal["auto", "chw", "hwc"]


@dataclass(frozen=True)
class ConvEncoderConfig:
    """Convolutions over an image; the default is that of the DQN of Mnih et al. 2015."""

    type: str = "cnn"
    """The registered name of the encoder."""
    channels: tuple[PositiveInt, ...] = (32, 64, 64)
    """Filters per convolution."""
    kernels: tuple[PositiveInt, ...] = (8, 4, 3)
    """Width and height of each convolution's filters, in pixels."""
    strides: tuple[PositiveInt, ...] = (4, 2, 1)
    """Pixels between two places of a filter. Larger is coarser and faster."""
    activation: Activation = "relu"
    """What follows each layer."""
    hidden_dims: tuple[PositiveInt, ...] = ()
    """Units per fully connected layer after the convolutions."""
    layout: Layout = "auto"
    """chw: channels first; hwc: channels last; auto: whichever of the two sizes is smaller."""

    def __post_init__(self) -> None:
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            sizes = f"{len(self.channels)}, {len(self.kernels)} and {len(self.strides)}"
            raise ValueError(f"channels, kernels and strides must be lists of the same length, not of {sizes}")


class ConvEncoder(nn.Module):
    """One image, or several stacked ones, through convolutions and then fully connected layers.

    Bytes become [0, 1]; floats pass as they are. Frames stacked along a leading fourth dimension become channels.
    """

    Config = ConvEncoderConfig

    def __init__(self, config: ConvEncoderConfig, space: gymnasium.Space[Any], *, generator: Generator) -> None:
        super().__init__()
        if not is_image(space):
            raise UserError(f"a cnn reads images: boxes of 2 to 4 dimensions, not {space}")
        shape = tuple(space.shape or ())
        self._rank = len(shape)
        self._frames = shape[0] if self._rank == 4 else 1
        self._channels_last = self._rank == 2 or is_channels_last(shape[-3:], config.layout)
        height, width, channels = image_sizes(shape, self._channels_last)
        layers: list[nn.Module] = []
        inputs = self._frames * channels
        for outputs, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
            layers += [convolution(inputs, outputs, kernel, stride, generator), ACTIVATIONS[config.activation]()]
            inputs = outputs
        rows, columns = (_after(size, config.kernels, config.strides) for size in (height, width))
        if min(rows, columns) < 1:
            raise UserError(
                f"kernels {list(config.kernels)} with strides {list(config.strides)} leave nothing of an image of "
                f"{height}×{width} pixels; use smaller ones, such as channels: [16, 32], kernels: [3, 3], strides: [1, 1]"
            )
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        sizes = [inputs * rows * columns, *config.hidden_dims]
        self.layers = nn.Sequential(*hidden_layers(sizes, config.activation, generator))
        self.size = sizes[-1]

    def forward(self, value: Tensor) -> Tensor:
        """(*batch, *shape) → (*batch, size)"""
        batch = value.shape[: value.ndim - self._rank]
        features = self.layers(self.convolutions(self._images(value)))
        return features.reshape(*batch, self.size)

    def _images(self, value: Tensor) -> Tensor:
        """(*batch, *shape) → (B, frames · channels, height, width)"""
        pixels = value.float() / 255.0 if value.dtype == torch.uint8 else value.float()
        shape = value.shape[value.ndim - self._rank :]
        if self._rank == 2:
            return pixels.reshape(-1, 1, *shape)
        frames = pixels.reshape(-1, self._frames, *shape[-3:])
        if self._channels_last:
            frames = frames.permute(0, 1, 4, 2, 3)
        return frames.flatten(1, 2)


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a space has the shape of an image (H, W), (C, H, W) or (H, W, C), or of a stack of the latter two."""
    return isinstance(space, spaces.Box) and 2 <= len(space.shape) <= 4


def suits_convolution(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is an image with channels, large enough for the default convolutions."""
    if not is_image(space) or len(space.shape or ()) < 3:
        return False
    shape = tuple(space.shape or ())
    if shape[-3] == shape[-1]:
        return False
    config = ConvEncoderConfig()
    height, width, _ = image_sizes(shape, is_channels_last(shape[-3:], "auto"))
    return min(_after(size, config.kernels, config.strides) for size in (height, width)) >= 1


def convolution_for(key: str, space: gymnasium.Space[Any]) -> ConvEncoderConfig | None:
    """Return what reads a part of an observation that is an image, whatever its key."""
    return ConvEncoderConfig() if suits_convolution(space) else None


def is_channels_last(shape: Sequence[int], layout: Layout) -> bool:
    """Whether an image of three sizes has its channels in the last; UserError where nobody can tell."""
    if layout == "auto" and shape[0] == shape[2]:
        raise UserError(f"is an image of shape {tuple(shape)} chw or hwc? set layout")
    return layout == "hwc" or (layout == "auto" and shape[2] < shape[0])


def image_sizes(shape: Sequence[int], channels_last: bool) -> tuple[int, int, int]:
    """Return height, width and channels of an image."""
    if len(shape) == 2:
        return shape[0], shape[1], 1
    first, second, third = shape[-3:]
    return (first, second, third) if channels_last else (second, third, first)


def _after(size: int, kernels: Sequence[int], strides: Sequence[int]) -> int:
    """How many places remain along one side after all convolutions; less than 1 if it is too small."""
    for kernel, stride in zip(kernels, strides, strict=True):
        if size < kernel:
            return 0
        size = (size - kernel) // stride + 1
    return size

"""Layers of DreamerV3 (Hafner et al. 2025): weights by fan-in, RMSNorm and SiLU after each, and products of blocks."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components.networks.layers import with_memory

UNCUT = 1.1368
"""A normal cut off at two standard deviations has 1 / 1.1368 of its standard deviation left."""
EPS = 1e-4


def by_fan_in_(weight: Tensor, fan_in: int, generator: Generator, gain: float = 1.0) -> None:
    """Fill weights from a truncated normal of variance gain² / fan-in."""
    if gain == 0:
        nn.init.zeros_(weight)
        return
    std = UNCUT * gain / math.sqrt(fan_in)
    nn.init.trunc_normal_(weight, 0.0, std, -2 * std, 2 * std, generator=generator)


def fan_in_linear(
    inputs: int, outputs: int, generator: Generator, gain: float = 1.0, *, fan_in: int | None = None
) -> nn.Linear:
    """Return a fully connected layer; `fan_in` counts inputs that another layer adds to the same sum."""
    layer = with_memory(nn.Linear(inputs, outputs, device="meta"))
    by_fan_in_(layer.weight, fan_in or inputs, generator, gain)
    nn.init.zeros_(layer.bias)
    return layer


def fan_in_convolution(inputs: int, outputs: int, kernel: int, generator: Generator) -> nn.Conv2d:
    """Return a convolution that keeps width and height."""
    layer = with_memory(nn.Conv2d(inputs, outputs, kernel, padding="same", device="meta"))
    by_fan_in_(layer.weight, inputs * kernel * kernel, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class BlockLinear(nn.Module):
    """A fully connected layer whose matrix is `blocks` blocks along the diagonal."""

    def __init__(self, inputs: int, outputs: int, blocks: int, generator: Generator, *, fan_in: int | None = None) -> None:
        """`fan_in` counts inputs that another layer adds to the same sum."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, inputs // blocks, outputs // blocks))
        self.bias = nn.Parameter(torch.zeros(blocks, 1, outputs // blocks))
        by_fan_in_(self.weight, fan_in or inputs, generator)  # of the whole layer, as in the published code: not of a block

    def forward(self, values: Tensor) -> Tensor:
        """(blocks, N, inputs / blocks) → (blocks, N, outputs / blocks)"""
        return torch.baddbmm(self.bias, values, self.weight)


class Normed(nn.Module):
    """What follows a layer: RMSNorm over the last dimension, and SiLU."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, values: Tensor) -> Tensor:
        """(..., size) → (..., size)"""
        return functional.silu(functional.rms_norm(values, self.scale.shape, self.scale.to(values.dtype), EPS))


class NormedGroups(nn.Module):
    """The same for several layers side by side, each normed by itself: one operation in place of as many."""

    def __init__(self, groups: int, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(groups, size))

    def forward(self, values: Tensor) -> Tensor:
        """(..., groups · size) → (..., groups · size)"""
        normed = functional.rms_norm(values.unflatten(-1, self.scale.shape), self.scale.shape[-1:], None, EPS)
        return functional.silu(normed * self.scale.to(values.dtype)).flatten(-2)


class NormedLinear(nn.Module):
    """A fully connected layer, RMSNorm and SiLU."""

    def __init__(self, inputs: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        self.linear, self.normed = fan_in_linear(inputs, outputs, generator), Normed(outputs)

    def forward(self, values: Tensor) -> Tensor:
        """(..., inputs) → (..., outputs)"""
        return self.normed(self.linear(values))


class NormedChannels(nn.Module):
    """RMSNorm over the channels of pictures, and SiLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, channels, height, width) → the same"""
        size = torch.rsqrt(pictures.float().square().mean(1, keepdim=True) + EPS).to(pictures.dtype)
        return functional.silu(pictures * size * self.scale.to(pictures.dtype)[:, None, None])


def normed_layers(inputs: int, units: int, layers: int, generator: Generator) -> nn.Sequential:
    """Return so many normed layers of `units` each."""
    sizes = [inputs, *[units] * layers]
    return nn.Sequential(*(NormedLinear(sizes[k], units, generator) for k in range(layers)))

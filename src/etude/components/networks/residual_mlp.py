"""Residual networks that stay well conditioned however long they learn: blocks of FlashSAC, of Simba and of SimbaV2.

    batch    BN → W → [ x + relu(BN(W relu(BN(W x)))) ] × blocks → RMSNorm → head      FlashSAC (2026), after CrossQ (2024)
    layer    W → [ x + W relu(W LN(x)) ] × blocks → LN → head                          Simba (Lee et al. 2025)
    sphere   |s W [x; 3]| → [ |x + α (|W (s relu(W x))| - x)| ] × blocks → head        SimbaV2 (Lee et al. 2025)

|x| is x at length 1. With unit weights each row of every W is brought back to length 1 after each gradient step, and scales to
their first length: what grows then are the effects of steps, not weights. Algorithms do so that call `projection` (flash_sac).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import gymnasium
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components.networks.conv_encoder import convolution_for
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import HIDDEN_GAIN, linear, with_memory
from etude.config.constraints import Component, NonNegativeInt, PositiveInt

MOMENTUM = 0.01
"""How far running statistics move with each batch."""
LEAST = 1e-8
"""Lengths are not divided by less."""
APART = 3.0
"""SimbaV2: the number that is put beside an observation, so that its length is not lost."""


@dataclass(frozen=True)
class ResidualMLPConfig:
    """Residual blocks of two layers, normalised."""

    type: str = "residual_mlp"
    """The registered name of the network."""
    width: PositiveInt = 128
    """Units between blocks. Wider learns finer functions and costs time."""
    blocks: NonNegativeInt = 2
    """Residual blocks of two layers."""
    expansion: PositiveInt = 4
    """How many times as wide a block is inside."""
    norm: Literal["batch", "layer", "sphere"] = "batch"
    """batch: batch norm, as in FlashSAC; layer: layer norm, as in Simba; sphere: everything of length 1, as in SimbaV2."""
    unit_weights: bool = True
    """Keep the rows of all weights at length 1, where the algorithm brings them back after its steps."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of an observation before the layers, by its key; a single observation has the key `observation`.
    Default: cnn for images, flat for all else."""


class ResidualMLP(FeedForward):
    """An observation through residual blocks to `output_size` numbers."""

    Config = ResidualMLPConfig

    def __init__(
        self,
        config: ResidualMLPConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config.encoders, convolution_for, generator)
        width, inside, unit = config.width, config.width * config.expansion, config.unit_weights

        def weight(inputs: int, outputs: int) -> Weight:
            return Weight(inputs, outputs, generator, unit=unit)

        size = self.encoder.size
        if config.norm == "batch":
            begin: list[nn.Module] = [BatchNorm(size, unit=unit), weight(size, width)]
            blocks: list[nn.Module] = [BatchBlock(width, inside, weight, unit=unit) for _ in range(config.blocks)]
            end: list[nn.Module] = [RMSNorm(width, unit=unit)]
        elif config.norm == "layer":
            begin, end = [weight(size, width)], [nn.LayerNorm(width)]
            blocks = [_LayerBlock(width, inside, weight) for _ in range(config.blocks)]
        else:
            begin, end = [_ToSphere(), weight(size + 1, width), Scale(width), _Length1()], []
            blocks = [_SphereBlock(width, inside, weight, config.blocks) for _ in range(config.blocks)]
        head = Head(width, output_size, generator, output_gain, unit=unit)
        self.layers = nn.Sequential(*begin, *blocks, *end, head)


class Weight(nn.Linear):
    """A matrix without biases, whose rows have length 1 if it is to be so."""

    def __init__(self, inputs: int, outputs: int, generator: Generator, *, unit: bool) -> None:
        super().__init__(inputs, outputs, bias=False, device="meta")
        with_memory(self)
        nn.init.orthogonal_(self.weight, 1.0 if unit else HIDDEN_GAIN, generator=generator)
        self.is_unit = unit
        self.project_()

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the rows back to length 1."""
        if self.is_unit:
            to_length_1_(self.weight)


class Head(nn.Linear):
    """The last layer, with biases."""

    def __init__(self, inputs: int, outputs: int, generator: Generator, gain: float, *, unit: bool) -> None:
        super().__init__(inputs, outputs, device="meta")
        self.load_state_dict(linear(inputs, outputs, gain, generator).state_dict(), assign=True)
        self.is_unit = unit
        self.project_()

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the rows back to length 1."""
        if self.is_unit:
            to_length_1_(self.weight)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm whose scale and shift together keep their first length."""

    def __init__(self, size: int, *, unit: bool) -> None:
        super().__init__(size, momentum=MOMENTUM)
        self.is_unit = unit

    def forward(self, input: Tensor) -> Tensor:
        """(B, size) → the same; batches are not counted, which would be a kernel each time."""
        return normalised(self, input)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring scale and shift back to the length √size."""
        if self.is_unit:
            both = torch.cat([self.weight, self.bias])
            factor = math.sqrt(self.num_features) / both.norm().clamp(min=LEAST)
            self.weight.mul_(factor)
            self.bias.mul_(factor)


class RMSNorm(nn.RMSNorm):
    """RMSNorm whose scale keeps its first length."""

    def __init__(self, size: int, *, unit: bool) -> None:
        super().__init__(size, eps=1e-6)
        self.is_unit = unit

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the scale back to the length √size."""
        if self.is_unit:
            self.weight.mul_(math.sqrt(self.weight.numel()) / self.weight.norm().clamp(min=LEAST))


class Scale(nn.Module):
    """A factor for each number."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, values: Tensor) -> Tensor:
        """(..., size) → the same"""
        return values * self.scale


class BatchBlock(nn.Module):
    """Two layers with batch norms, and what went in."""

    def __init__(self, width: int, inside: int, weight: Callable[[int, int], Weight], *, unit: bool) -> None:
        super().__init__()
        self.out, self.back = weight(width, inside), weight(inside, width)
        self.norm_out, self.norm_back = BatchNorm(inside, unit=unit), BatchNorm(width, unit=unit)

    def forward(self, values: Tensor) -> Tensor:
        """(B, width) → the same"""
        inner = self.norm_out(self.out(values)).relu()
        return values + self.norm_back(self.back(inner)).relu()


class _LayerBlock(nn.Module):
    def __init__(self, width: int, inside: int, weight: Callable[[int, int], Weight]) -> None:
        super().__init__()
        self.norm, self.out, self.back = nn.LayerNorm(width), weight(width, inside), weight(inside, width)

    def forward(self, values: Tensor) -> Tensor:
        return values + self.back(self.out(self.norm(values)).relu())


class _SphereBlock(nn.Module):
    def __init__(self, width: int, inside: int, weight: Callable[[int, int], Weight], blocks: int) -> None:
        super().__init__()
        self.out, self.scale, self.back = weight(width, inside), Scale(inside), weight(inside, width)
        self.step = nn.Parameter(torch.full((width,), 1.0 / (blocks + 1)))

    def forward(self, values: Tensor) -> Tensor:
        towards = functional.normalize(self.back(self.scale(self.out(values)).relu()), dim=-1)
        return functional.normalize(values + self.step * (towards - values), dim=-1)


class _ToSphere(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        apart = torch.full_like(values[..., :1], APART)
        return functional.normalize(torch.cat([values, apart], -1), dim=-1)


class _Length1(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return functional.normalize(values, dim=-1)


def to_length_1_(rows: Tensor) -> None:
    """Bring rows (..., size) to length 1, in place."""
    rows.div_(torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=LEAST))


def normalised(norm: nn.BatchNorm1d, values: Tensor) -> Tensor:
    """Return what a batch norm makes of values (B, C, ...); it does all but count."""
    told = (norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training, norm.momentum or 0.0, norm.eps)
    return functional.batch_norm(values, *told)


def projection(*networks: nn.Module) -> Callable[[], None]:
    """Return what brings the weights of networks back to where they are to stay; for networks without such weights, nothing."""
    parts: list[Any] = [part for network in networks for part in network.modules() if hasattr(part, "project_")]

    def project() -> None:
        for part in parts:
            part.project_()

    return project

"""From a world model's state back to observations (DreamerV3): the mirror of its encoder.

    deter ─→ linear in blocks ─┐
                               ├─→ (channels, 4, 4) ─→ twice as wide and high, conv 5×5, RMSNorm, SiLU … ─→ sigmoid
    stoch ─→ layer ─→ linear ──┘

Vectors are predicted as their symlog, from normed layers on both; discrete values as a logit for each choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components.networks.conv_encoder import Layout
from etude.components.networks.decoder import DecoderNetwork
from etude.components.networks.encoder import width as numbers_of
from etude.components.networks.normed_layers import (
    BlockLinear,
    NormedChannels,
    NormedLinear,
    fan_in_convolution,
    fan_in_linear,
    normed_layers,
)
from etude.components.networks.world_encoder import GROWTH, KERNEL, PictureShape, is_picture, parts_of
from etude.components.networks.world_mlp import USUAL_WIDTH
from etude.components.two_hot import symlog
from etude.config.constraints import PositiveInt
from etude.environments.vector import Observation

DETER, STOCH = "deter", "stoch"
BLOCKS = 8


@dataclass(frozen=True)
class WorldDecoderConfig:
    """A world model's state to pictures by convolutions, to all else by normed layers."""

    type: str = "world_decoder"
    """The registered name of the network."""
    layers: PositiveInt = 3
    """Hidden layers for vectors."""
    units: PositiveInt | None = None
    """Units of each. Default: as wide as the algorithm's other networks, or 256."""
    depth: PositiveInt | None = None
    """Channels of pictures, two to four times as many. Default: a sixteenth of the units."""
    layout: Layout = "auto"
    """Pictures: chw (channels first), hwc (channels last), or auto: whichever of the two sizes is smaller."""


class WorldDecoder(DecoderNetwork):
    """Reconstructs each part of a space from both parts of a state."""

    Config = WorldDecoderConfig

    def __init__(
        self,
        config: WorldDecoderConfig,
        input_space: gymnasium.Space[Any],
        output_space: gymnasium.Space[Any],
        *,
        generator: Generator,
        output_gain: float = 1.0,
        width: int | None = None,
    ) -> None:
        super().__init__()
        units = config.units or width or USUAL_WIDTH
        assert isinstance(input_space, spaces.Dict), "a world decoder reads a state of two parts"
        deter, stoch = (int(input_space[name].shape[0]) for name in (DETER, STOCH))  # type: ignore[index] # vectors
        parts, depth = parts_of(output_space), config.depth or max(4, units // 16)
        self._pictures = tuple(name for name, part in parts.items() if is_picture(part))
        self.pictures = nn.ModuleList(
            _Picture(parts[name], deter, stoch, units, depth, config.layout, generator) for name in self._pictures
        )
        self._vectors = {name: part for name, part in parts.items() if name not in self._pictures}
        self.hidden = normed_layers(deter + stoch, units, config.layers, generator) if self._vectors else None
        self.out = nn.ModuleList(
            fan_in_linear(units, numbers_of(part), generator, output_gain) for part in self._vectors.values()
        )

    def forward(self, features: Observation) -> Observation:
        """deter (*batch, D), stoch (*batch, S) → (*batch, *shape), or a dict of these by key"""
        assert isinstance(features, dict)
        deter, stoch = features[DETER], features[STOCH]
        made = {name: picture(deter, stoch) for name, picture in zip(self._pictures, self.pictures, strict=True)}
        if self.hidden is not None:
            hidden = self.hidden(torch.cat([deter, stoch], -1))
            for (name, part), layer in zip(self._vectors.items(), self.out, strict=True):
                made[name] = _shaped(layer(hidden), part)
        return made.get("", made)


def _shaped(numbers: Tensor, space: gymnasium.Space[Any]) -> Tensor:
    shape = tuple(space.shape or ()) if isinstance(space, spaces.Box) else (numbers.shape[-1],)
    return numbers.unflatten(-1, shape) if shape else numbers.squeeze(-1)


class _Picture(nn.Module):
    def __init__(
        self,
        space: gymnasium.Space[Any],
        deter: int,
        stoch: int,
        units: int,
        depth: int,
        layout: Layout,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.shape = PictureShape(space, layout)
        *rest, last = (growth * depth for growth in GROWTH)
        shrunk = 2 ** len(GROWTH)
        self._grid = (last, -(-self.shape.height // shrunk), -(-self.shape.width // shrunk))
        size = last * self._grid[1] * self._grid[2]
        self.from_deter = BlockLinear(deter, size, BLOCKS, generator)
        self.from_stoch = nn.Sequential(NormedLinear(stoch, 2 * units, generator), fan_in_linear(2 * units, size, generator))
        self.normed = NormedChannels(last)
        growing: list[nn.Module] = []
        for channels in reversed(rest):
            growing += [nn.Upsample(scale_factor=2), fan_in_convolution(last, channels, KERNEL, generator)]
            growing += [NormedChannels(channels)]
            last = channels
        growing += [nn.Upsample(scale_factor=2), fan_in_convolution(last, self.shape.channels, KERNEL, generator)]
        self.growing = nn.Sequential(*growing)

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """(*batch, D), (*batch, S) → (*batch, *shape), from 0 to 1"""
        batch = tuple(deter.shape[:-1])
        rows = deter.reshape(-1, BLOCKS, deter.shape[-1] // BLOCKS).transpose(0, 1)
        grid = self.from_deter(rows).transpose(0, 1).flatten(1) + self.from_stoch(stoch.reshape(-1, stoch.shape[-1]))
        pictures = self.growing(self.normed(grid.unflatten(-1, self._grid)))
        pictures = torch.sigmoid(pictures[..., : self.shape.height, : self.shape.width].float())
        return self.shape.as_space(pictures, batch)


def reconstruction_error(made: Observation, observation: Observation, space: gymnasium.Space[Any]) -> Tensor:
    """Return how far a reconstruction (N, ...) is from what was seen, summed over all that an observation has: (N,)

    Pictures and vectors by squared error, the latter in symlog; discrete values by cross-entropy.
    """
    made_parts, seen = (parts if isinstance(parts, dict) else {"": parts} for parts in (made, observation))
    errors = [_error(made_parts[name].float(), seen[name], part) for name, part in parts_of(space).items()]
    return torch.stack(errors).sum(0)


def _error(made: Tensor, seen: Tensor, space: gymnasium.Space[Any]) -> Tensor:
    if isinstance(space, spaces.Discrete):
        return functional.cross_entropy(made, seen.long() - int(space.start), reduction="none")
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.flatten().tolist(), space.start.flatten().tolist()
        values = seen.flatten(1).long()
        each = [
            functional.cross_entropy(logits, values[:, k] - start, reduction="none")
            for k, (logits, start) in enumerate(zip(made.split(sizes, -1), starts, strict=True))
        ]
        return torch.stack(each).sum(0)
    target = seen.float() / 255.0 if seen.dtype == torch.uint8 else seen.float()
    target = target if is_picture(space) else symlog(target)
    return (made.reshape(len(made), -1) - target.reshape(len(made), -1)).square().sum(-1)

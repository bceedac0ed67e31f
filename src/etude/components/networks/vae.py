"""A variational autoencoder (Kingma and Welling 2014) as in World Models (Ha and Schmidhuber 2018): much seen, few numbers.

picture 64×64 ─→ conv 4×4/2, four times: 31, 14, 6, 2 ─┐                  ┌─→ transposed conv 5, 5, 6, 6: 5, 13, 30, 64
                                                       ├─→ μ, ln σ² ─→ z ─┤
vector ─→ variance 1 ─→ fully connected layers ────────┘                  └─→ fully connected layers

loss = Σ (x − decode(z))² + max(KL, tolerance · |z|),   KL = ½ Σ (μ² + σ² − ln σ² − 1),   z = μ + σ ε
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import Layout
from etude.components.networks.encoder import FlatEncoder, width
from etude.components.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    Activation,
    convolution,
    hidden_layers,
    linear,
    output_layers,
    transposed_convolution,
)
from etude.components.networks.world_encoder import PictureShape, is_picture, parts_of
from etude.components.normalizers import RunningMoments
from etude.config.constraints import NonNegativeFloat, PositiveInt
from etude.environments.vector import Observation
from etude.errors import UserError

SIDE, KERNEL = 64, 4
GROWING = (5, 5, 6, 6)
"""Kernels of the transposed convolutions, which make 64 pixels of one."""
LARGEST_LOG_VAR = 10.0
"""Either way; beyond, deviations would soon be no numbers any more."""
SMALLEST_VARIANCE = 1e-4
"""A number that never moves has no scale to be put on."""


@dataclass(frozen=True)
class VAEConfig:
    """Pictures of 64 × 64 pixels by convolutions, all else by fully connected layers; a Dict part by part."""

    type: str = "vae"
    """The registered name of the network."""
    channels: tuple[PositiveInt, ...] = (32, 64, 128, 256)
    """Filters of the four convolutions of a picture; those back are as many, the other way round."""
    hidden_dims: tuple[PositiveInt, ...] = (128, 128)
    """Units of each layer for vectors, on either side."""
    activation: Activation = "relu"
    """What follows each hidden layer."""
    vector_weight: NonNegativeFloat = 100.0
    """What the squared error of a vector counts, with variance 1: a picture's is a sum over thousands of pixels. Higher keeps
    finer differences."""
    layout: Layout = "auto"
    """Pictures: chw (channels first), hwc (channels last), or auto: whichever of the two sizes is smaller."""

    def __post_init__(self) -> None:
        if len(self.channels) != len(GROWING):
            raise ValueError(f"channels must have {len(GROWING)} entries")


class Posterior(NamedTuple):
    """What an observation is taken for: a Gaussian over latents, (*batch, Z) each."""

    mean: Tensor
    log_var: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """Return latents, from standard normal numbers of the same shape."""
        return self.mean + torch.exp(0.5 * self.log_var) * noise

    def divergence(self) -> Tensor:
        """Return the KL divergence from a standard normal: (*batch,)"""
        return 0.5 * (self.mean.square() + self.log_var.exp() - self.log_var - 1).sum(-1)


class VAE(nn.Module):
    """Observations to a Gaussian over `output_size` numbers, and back."""

    Config = VAEConfig

    def __init__(
        self,
        config: VAEConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.size, self._vector_weight = output_size, config.vector_weight
        parts = parts_of(observation_space)
        self._pictures = tuple(name for name, part in parts.items() if is_picture(part))
        self._vectors = {name: part for name, part in parts.items() if name not in self._pictures}
        self.pictures = nn.ModuleList(_Picture(parts[name], output_size, config, generator) for name in self._pictures)
        features = sum(int(picture.size) for picture in self.pictures)  # type: ignore[arg-type] # a _Picture's
        self.flat = nn.ModuleList(FlatEncoder(part) for part in self._vectors.values())
        numbers = sum(width(part) for part in self._vectors.values())
        self.hidden = self.numbers = self.moments = None
        if numbers:
            inwards, outwards = [numbers, *config.hidden_dims], [output_size, *reversed(config.hidden_dims)]
            self.hidden = nn.Sequential(*hidden_layers(inwards, config.activation, generator))
            self.numbers = output_layers(outwards, config.activation, numbers, 1.0, generator)
            self.moments = RunningMoments((numbers,))
            features += inwards[-1]
        self.mean = linear(features, output_size, output_gain, generator)
        self.log_var = linear(features, output_size, output_gain, generator)

    def forward(self, observation: Observation) -> Tensor:
        """Return the likeliest latents: (*batch, ...) → (*batch, Z)"""
        return self.observe(observation).mean

    def observe(self, observation: Observation) -> Posterior:
        """(*batch, ...) → a Gaussian over latents (*batch, Z)"""
        seen = observation if isinstance(observation, dict) else {"": observation}
        features = [picture.encode(seen[name]) for name, picture in zip(self._pictures, self.pictures, strict=True)]  # type: ignore[operator] # a _Picture's
        if self.hidden is not None:
            features.append(self.hidden(self._scaled(seen)))
        joined = torch.cat(features, -1)
        return Posterior(self.mean(joined), self.log_var(joined).clamp(-LARGEST_LOG_VAR, LARGEST_LOG_VAR))

    def decode(self, latent: Tensor) -> Observation:
        """(*batch, Z) → pictures from 0 to 1, vectors as they are seen, discrete values as a number for each choice."""
        made = {name: picture.decode(latent) for name, picture in zip(self._pictures, self.pictures, strict=True)}  # type: ignore[operator] # a _Picture's
        if self.numbers is not None and self.moments is not None:
            numbers = self.numbers(latent) * self._deviation() + self.moments.mean.float()
            widths = [width(part) for part in self._vectors.values()]
            for (name, part), values in zip(self._vectors.items(), numbers.split(widths, -1), strict=True):
                made[name] = values.unflatten(-1, part.shape) if isinstance(part, spaces.Box) and part.shape else values
        return made.get("", made)

    def errors(self, observation: Observation, latent: Tensor) -> Tensor:
        """Return the squared error of what latents (B, Z) are decoded to, summed over all that an observation has: (B,)"""
        seen = observation if isinstance(observation, dict) else {"": observation}
        errors = [picture.error(seen[name], latent) for name, picture in zip(self._pictures, self.pictures, strict=True)]  # type: ignore[operator] # a _Picture's
        if self.numbers is not None:
            errors.append(self._vector_weight * (self.numbers(latent) - self._scaled(seen)).square().sum(-1))
        return torch.stack(errors).sum(0)

    def loss(self, observation: Observation, noise: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss of observations (B, ...) and its parts, the error and the divergence: (B,) each.

        Divergence below `tolerance` per latent is left alone.
        """
        posterior = self.observe(observation)
        error, divergence = self.errors(observation, posterior.draw(noise)), posterior.divergence()
        return error + divergence.clamp(min=tolerance * self.size), error, divergence

    def measure(self, observation: Observation) -> None:
        """Take in observations (B, ...) that say on which scale vectors are; pictures have one of their own."""
        if self.moments is not None:
            seen = observation if isinstance(observation, dict) else {"": observation}
            self.moments.update(self._numbers(seen))

    def _numbers(self, seen: dict[str, Tensor]) -> Tensor:
        return torch.cat([flat(seen[name]) for name, flat in zip(self._vectors, self.flat, strict=True)], -1)

    def _scaled(self, seen: dict[str, Tensor]) -> Tensor:
        assert self.moments is not None
        return (self._numbers(seen) - self.moments.mean.float()) / self._deviation()

    def _deviation(self) -> Tensor:
        assert self.moments is not None
        return self.moments.var.float().clamp(min=SMALLEST_VARIANCE).sqrt()


class _Picture(nn.Module):
    """One picture's layers, there and back."""

    def __init__(self, space: gymnasium.Space[Any], latents: int, config: VAEConfig, generator: Generator) -> None:
        super().__init__()
        self.shape = PictureShape(space, config.layout)
        if (self.shape.height, self.shape.width) != (SIDE, SIDE):
            raise UserError(
                f"a vae sees pictures of {SIDE} x {SIDE} pixels, not {self.shape.height} x {self.shape.width}; add "
                f"{{id: resize, size: {SIDE}}} to environment.wrappers"
            )
        shrinking: list[nn.Module] = []
        for before, after in pairwise((self.shape.channels, *config.channels)):
            shrinking += [convolution(before, after, KERNEL, 2, generator), ACTIVATIONS[config.activation]()]
        self.shrinking = nn.Sequential(*shrinking, nn.Flatten())
        self.size = 4 * config.channels[-1]  # 2 × 2 pixels are left
        self.first = linear(latents, self.size, HIDDEN_GAIN, generator)
        growing: list[nn.Module] = []
        filters = (self.size, *reversed(config.channels[:-1]), self.shape.channels)
        for (before, after), kernel in zip(pairwise(filters), GROWING, strict=True):
            gain = HIDDEN_GAIN if len(growing) < 2 * (len(GROWING) - 1) else 1.0
            growing += [transposed_convolution(before, after, gain, generator, kernel=kernel, padding=0)]
            growing += [ACTIVATIONS[config.activation]()]
        self.growing = nn.Sequential(*growing[:-1])

    def encode(self, pictures: Tensor) -> Tensor:
        """(*batch, *shape) → (*batch, size)"""
        channels_first, batch = self.shape.channels_first(pictures)
        return self.shrinking(channels_first).reshape(*batch, self.size)

    def decode(self, latent: Tensor) -> Tensor:
        """(*batch, Z) → (*batch, *shape), from 0 to 1"""
        return self.shape.as_space(self._grown(latent.reshape(-1, latent.shape[-1])), tuple(latent.shape[:-1]))

    def error(self, pictures: Tensor, latent: Tensor) -> Tensor:
        """(B, *shape), (B, Z) → (B,)"""
        channels_first, _ = self.shape.channels_first(pictures)
        return (self._grown(latent) - channels_first).square().flatten(1).sum(-1)

    def _grown(self, latent: Tensor) -> Tensor:
        return torch.sigmoid(self.growing(self.first(latent)[..., None, None]).float())

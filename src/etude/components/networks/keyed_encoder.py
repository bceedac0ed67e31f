"""An encoder for each part of an observation, chosen by its key, and their features side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.layers import Activation, hidden_layers
from etude.components.recipes import Recipe, recipe_with_parts, remember
from etude.config.constraints import PositiveInt
from etude.config.registry import encoders
from etude.config.validate import Part
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError, did_you_mean

SINGLE = "observation"
"""The key of an observation that has no parts."""
Default = Callable[[str, gymnasium.Space[Any]], Any]
"""From a part's key (empty for a single observation) and space to the settings of its encoder; None is flat."""


@dataclass(frozen=True)
class FlatEncoderConfig:
    """The values themselves: flattened, bytes scaled to [0, 1], discrete values one-hot."""

    type: str = "flat"
    """The registered name of the encoder."""


@dataclass(frozen=True)
class MLPEncoderConfig:
    """Fully connected layers on the flat values."""

    type: str = "mlp"
    """The registered name of the encoder."""
    hidden_dims: tuple[PositiveInt, ...] = (64,)
    """Units per layer; the last is how many features come out."""
    activation: Activation = "tanh"
    """What follows each layer."""


class FlatPart(FlatEncoder):
    """One part of an observation as it is."""

    Config = FlatEncoderConfig

    def __init__(self, config: FlatEncoderConfig, space: gymnasium.Space[Any], *, generator: Generator) -> None:
        super().__init__(space)


class MLPEncoder(nn.Module):
    """One part of an observation through fully connected layers."""

    Config = MLPEncoderConfig

    def __init__(self, config: MLPEncoderConfig, space: gymnasium.Space[Any], *, generator: Generator) -> None:
        super().__init__()
        self.flat = FlatEncoder(space)
        sizes = [self.flat.size, *config.hidden_dims]
        self.size = sizes[-1]
        self.layers = nn.Sequential(*hidden_layers(sizes, config.activation, generator))

    def forward(self, value: Tensor) -> Tensor:
        """(*batch, ...) → (*batch, size)"""
        return self.layers(self.flat(value))


class KeyedEncoder(nn.Module):
    """Encodes each part of an observation by itself and joins the features in the order of the keys."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._keys = tuple(parts)
        self.parts = nn.ModuleList(parts.values())
        self.size = sum(int(part.size) for part in parts.values())  # type: ignore[arg-type] # every encoder has a size
        remember(self, recipe_with_parts("keyed_encoder", parts))

    def forward(self, observation: Observation) -> Tensor:
        """(*batch, ...) → (*batch, size)"""
        if not isinstance(observation, dict):
            return self.parts[0](observation)
        return torch.cat([part(observation[key]) for key, part in zip(self._keys, self.parts, strict=True)], dim=-1)


def make_encoder(
    space: gymnasium.Space[Any], chosen: Mapping[str, Any], default: Default, generator: Generator
) -> FlatEncoder | KeyedEncoder:
    """Return what turns observations of a space into features: the encoders `chosen` by key, and by `default` the others."""
    leaves = {key: part for key, part in leaf_spaces(space).items() if key != ACTION_MASK}
    names = {key or SINGLE: key for key in leaves}
    for name in chosen:
        if name not in names:
            near = did_you_mean(name, names) or f" (there are: {', '.join(names)})"
            raise UserError(f"encoders.{name}: observations have no such part{near}")
    options = {key: chosen.get(name) or default(key, leaves[key]) for name, key in names.items()}
    if not any(options.values()):
        return FlatEncoder(space)
    parts = {key: build_encoder(options[key], leaves[key], key or SINGLE, generator) for key in leaves}
    return KeyedEncoder(parts)


def build_encoder(options: Any, space: gymnasium.Space[Any], name: str, generator: Generator) -> nn.Module:
    """Return what reads one part of an observation, called `name` in errors; without options it is flat."""
    options = options or FlatEncoderConfig()
    cls = encoders.resolve(options.type)
    try:
        part = cls(space, **options.options) if isinstance(options, Part) else cls(options, space, generator=generator)
    except (UserError, TypeError, ValueError) as error:
        raise UserError(f"encoders.{name}: {error}") from error
    if not isinstance(getattr(part, "size", None), int):
        raise UserError(f"encoders.{name}: {options.type} has no 'size', the number of features it returns")
    return remember(part, Recipe("encoder", options, {"space": space}))

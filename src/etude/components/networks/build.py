"""From a network's settings to the network, with first weights that depend on a seed alone."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import torch
from torch import nn

from etude.compute.random_streams import isolated_global_generators
from etude.config.registry import networks
from etude.config.validate import Part
from etude.errors import UserError


def build_network(
    options: Any,
    observation_space: gymnasium.Space[Any],
    output_size: int,
    *,
    seed: int,
    output_gain: float = 1.0,
    where: str = "network",
) -> nn.Module:
    """Build the network that `options` describe; `where` they stand in the config is named in errors.

    A class with a `Config` is given its settings whole; any other gets them as keyword arguments, after the observation
    space and the number of outputs, and of `generator` and `output_gain` whichever its constructor has.
    """
    cls = networks.resolve(options.type)
    given = {"generator": torch.Generator().manual_seed(seed), "output_gain": output_gain}
    try:
        # Layers of torch's own draw their weights from the global generator: they too begin the same every time.
        with isolated_global_generators(seed):
            if isinstance(options, Part):
                known = inspect.signature(cls).parameters
                accepted = {name: value for name, value in given.items() if name in known}
                network = cls(observation_space, output_size, **accepted, **options.options)
            else:
                network = cls(options, observation_space, output_size, **given)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where}: {options.type} can't be built: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"{where}: {options.type} is no network: it makes a {type(network).__name__}, not a torch.nn.Module")
    return network

"""From a network's settings to the network, with first weights that depend on a seed alone."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from etude.components.networks.memory import has_memory
from etude.components.recipes import Recipe, recipe_with_parts, remember
from etude.compute.devices import out_of_memory
from etude.compute.random_streams import isolated_global_generators
from etude.config.registry import networks
from etude.config.validate import Part
from etude.environments.spaces import observation_specs
from etude.errors import UserError

TRUNK = "trunk"
"""The part of a head that is another network."""


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
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        if out_of_memory(error) is not None:
            raise UserError(
                f"{where}.type={options.type}: this machine has no memory left for a network of this size; "
                "make its layers or what it reads smaller"
            ) from error
        raise UserError(f"{where}: {options.type} can't be built: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"{where}: {options.type} is no network: it makes a {type(network).__name__}, not a torch.nn.Module")
    if isinstance(options, Part) and not has_memory(cls):
        _try(network, observation_space, output_size, seed, f"{where}: {options.type}")
    values = {"output_size": output_size, "seed": seed, "output_gain": output_gain}
    if isinstance(observation_space, nn.Module):  # of a head: the network that it stands on
        return remember(network, recipe_with_parts("network", {TRUNK: observation_space}, settings=options, values=values))
    return remember(network, Recipe("network", options, {"observation_space": observation_space}, values=values))


def _try(network: nn.Module, space: gymnasium.Space[Any], output_size: int, seed: int, where: str) -> None:
    """Let a user's own network look at two observations: what it can't read, or gives back in a wrong size, is said at once."""
    if not any(weights.requires_grad for weights in network.parameters()):
        raise UserError(f"{where} has no weights that could be learnt")
    specs = observation_specs(space)
    seen: Any = {name: torch.zeros((2, *spec.shape), dtype=spec.dtype) for name, spec in specs.items()}
    seen = seen.get("", seen)
    was_training = network.training
    try:
        with torch.no_grad(), isolated_global_generators(seed):
            given = network.eval()(seen)
    except Exception as error:
        said = " ".join(str(error).split())
        raise UserError(f"{where} can't read an observation of {space}: {type(error).__name__}: {said}") from error
    finally:
        network.train(was_training)
    if not isinstance(given, Tensor) or given.shape != (2, output_size):
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise UserError(f"{where} gives {shape} for two observations, where {(2, output_size)} is needed")

"""From settings and specs to networks, with first weights that depend on a seed and a role alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from etude.components.critics import Ensemble
from etude.components.distributions import ActionHead
from etude.components.networks.decoder import DecoderNetwork
from etude.components.networks.feed_forward import FeedForward
from etude.components.networks.groups import group_of, reads_group
from etude.components.networks.head import Head
from etude.components.networks.memory import MemoryNetwork, has_memory, is_kind
from etude.components.networks.spec import Features, NetworkSpec, vector
from etude.components.recipes import recipe_with_parts, remember
from etude.compute.devices import out_of_memory
from etude.compute.random_streams import derive_seed, isolated_global_generators
from etude.config.registry import networks
from etude.config.validate import Part
from etude.environments.spaces import leaf_spaces, observation_specs
from etude.errors import UserError
from etude.files.printable import one_line

TRUNK = "trunk"
"""The part of a head that is another network."""


def build_networks(
    chosen: Mapping[str, Any],
    roles: Mapping[str, NetworkSpec],
    observation_space: gymnasium.Space[Any],
    *,
    seed: int,
    device: torch.device,
    algorithm: str,
) -> dict[str, nn.Module]:
    """Build the network of every role as its settings and its spec say, in the order of `roles`."""
    for role in [*(role for role in roles if role not in chosen), *(role for role in chosen if role not in roles)]:
        missing = "has no settings" if role in roles else f"the class method `roles` of {algorithm} says nothing of it"
        raise UserError(f"network.{role}: {missing}")
    built: dict[str, nn.Module] = {}
    for role, spec in roles.items():
        made = _build_role(role, chosen[role], spec, built, observation_space, seed, algorithm)
        for method in spec.methods:
            if not callable(getattr(made, method, None)):
                kind = chosen[role].type
                raise UserError(f"network.{role}.type={kind}: {algorithm} needs its method '{method}', and it has none")
        built[role] = made.to(device)
    return built


def _build_role(
    role: str,
    options: Any,
    spec: NetworkSpec,
    before: Mapping[str, nn.Module],
    observation_space: gymnasium.Space[Any],
    seed: int,
    algorithm: str,
) -> nn.Module:
    cls, where = networks.resolve(options.type), f"network.{role}"
    if spec.hidden_dims is not None and getattr(options, "hidden_dims", ()) is None:
        options = replace(options, hidden_dims=tuple(spec.hidden_dims))
    if has_memory(cls) and not spec.may_remember:
        raise UserError(
            f"{where}.type={options.type}: this network has memory, and {algorithm} looks at one "
            "observation at a time; choose another network, or an algorithm that takes it, such as ppo"
        )
    outputs = spec.outputs.size if isinstance(spec.outputs, ActionHead) else spec.outputs
    inputs: Any = spec.inputs
    beside, group = [], None
    if is_kind(cls, Head):
        inputs = _trunk(role, options.of, spec, before, algorithm)
    elif isinstance(inputs, Features):
        inputs = vector(_features_of(role, inputs.of, before))
    elif isinstance(inputs, int):
        inputs = vector(inputs)
    else:
        inputs, own = observation_space if inputs is None else inputs, leaf_spaces(observation_space)
        beside = [name for name in leaf_spaces(inputs) if name not in own]
        group = group_of(spec.group or role, inputs, beside)

    def build(*purpose: object) -> nn.Module:
        network = build_network(
            options,
            inputs if group is None else group,
            outputs,
            seed=derive_seed(seed, "init", role, *purpose),
            output_gain=spec.output_gain,
            width=spec.width,
            where=where,
        )
        return network if group is None else reads_group(network, spec.group or role, beside)

    return build() if spec.copies is None else Ensemble.of([build(i) for i in range(spec.copies)])


def _trunk(role: str, of: str, spec: NetworkSpec, before: Mapping[str, nn.Module], algorithm: str) -> nn.Module:
    """Return the network that a head stands on."""
    if not spec.may_be_head:
        raise UserError(f"network.{role}.type=head: {algorithm} trains its networks apart; choose another type")
    if of not in before:
        known = ", ".join(before) or "none"
        raise UserError(f"network.{role}.of={of}: there is no such network before it (there are: {known})")
    return before[of]


def _features_of(role: str, of: str, before: Mapping[str, nn.Module]) -> int:
    """Return how many features another role's network has."""
    if of not in before:
        raise UserError(f"network.{role}: reads features of '{of}', and there is no such network before it")
    source = before[of]
    if not isinstance(source, FeedForward):
        raise UserError(f"network.{of}: {role} reads its features, and a {type(source).__name__} has none; use a cnn or an mlp")
    return source.feature_size


def build_network(
    options: Any,
    inputs: gymnasium.Space[Any] | nn.Module,
    outputs: int | gymnasium.Space[Any],
    *,
    seed: int,
    output_gain: float = 1.0,
    width: int | None = None,
    where: str = "network",
) -> nn.Module:
    """Build the network that `options` describe; `where` they stand in the config is named in errors.

    It reads a space (a head: a network) and puts out numbers (a decoder: a space). A class with a `Config` is given its
    settings whole; any other gets them as keyword arguments, after these two, and of `generator` and `output_gain` whichever
    its constructor has. `width` is for those with a `Config` that take it.
    """
    cls = networks.resolve(options.type)
    _check_outputs(cls, outputs, f"{where}.type={options.type}")
    given: dict[str, Any] = {"generator": torch.Generator().manual_seed(seed), "output_gain": output_gain}
    if width is not None and not isinstance(options, Part) and "width" in inspect.signature(cls).parameters:
        given["width"] = width
    try:
        # Layers of torch's own draw their weights from the global generator: they too begin the same every time.
        with isolated_global_generators(seed):
            if isinstance(options, Part):
                known = inspect.signature(cls).parameters
                accepted = {name: value for name, value in given.items() if name in known}
                network = cls(inputs, outputs, **accepted, **options.options)
            else:
                network = cls(options, inputs, outputs, **given)
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
    if hasattr(network, "initial_state") and not has_memory(network):
        raise UserError(f"{where}: {options.type} has memory: derive it from {MemoryNetwork.__module__}.MemoryNetwork")
    if isinstance(options, Part) and not has_memory(network):
        _try(network, inputs, outputs, seed, f"{where}: {options.type}")
    values: dict[str, Any] = {"seed": seed, "output_gain": output_gain}
    values |= {"width": width} if "width" in given else {}
    seen: dict[str, Any] = {} if isinstance(inputs, nn.Module) else {"observation_space": inputs}
    if isinstance(outputs, gymnasium.Space):
        seen["output_space"] = outputs
    else:
        values["output_size"] = outputs
    parts = {TRUNK: inputs} if isinstance(inputs, nn.Module) else {}
    return remember(network, recipe_with_parts("network", parts, settings=options, spaces=seen, values=values))


def _check_outputs(cls: Any, outputs: int | gymnasium.Space[Any], where: str) -> None:
    """Refuse a network of numbers where a space is to be reconstructed, and the other way round."""
    if is_kind(cls, DecoderNetwork) and not isinstance(outputs, gymnasium.Space):
        raise UserError(f"{where}: reconstructs a space, where {outputs} numbers are needed; use an mlp or a cnn")
    if isinstance(outputs, gymnasium.Space) and not is_kind(cls, DecoderNetwork):
        raise UserError(f"{where}: gives numbers, where {one_line(str(outputs))} is reconstructed; use a decoder")


def _try(network: nn.Module, inputs: Any, outputs: int | gymnasium.Space[Any], seed: int, where: str) -> None:
    """Let a user's own network look at two observations: what it can't read, or gives back in a wrong size, is said at once."""
    if not any(weights.requires_grad for weights in network.parameters()):
        raise UserError(f"{where} has no weights that could be learnt")
    was_training = network.training
    try:
        with torch.no_grad(), isolated_global_generators(seed):
            given = network.eval()(_two(inputs))
    except Exception as error:
        said = " ".join(str(error).split())
        raise UserError(f"{where} can't read an observation of {inputs}: {type(error).__name__}: {said}") from error
    finally:
        network.train(was_training)
    wanted = (2, outputs) if isinstance(outputs, int) else _shapes(_two(outputs))
    if _shapes(given) != wanted:
        raise UserError(f"{where} gives {_shapes(given)} for two observations, where {wanted} is needed")


def _two(space: gymnasium.Space[Any]) -> Any:
    """Two values of a space, all zeros."""
    seen = {name: torch.zeros((2, *spec.shape), dtype=spec.dtype) for name, spec in observation_specs(space).items()}
    return seen.get("", seen)


def _shapes(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _shapes(value) for name, value in given.items()}
    return tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__

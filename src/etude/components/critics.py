"""Action values: networks that read an observation and an action, several at once."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.components.networks.batched_residual_mlp import BatchedResidualMLP
from etude.components.networks.groups import GroupReader, group_of_all
from etude.components.networks.keyed_encoder import SINGLE
from etude.components.networks.mlp import MLP
from etude.components.networks.normed_mlp import BatchedNormedMLP
from etude.components.recipes import recipe_with_parts, remember
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation

ACTION = "action"


def space_with(observation_space: gymnasium.Space[Any], name: str, space: gymnasium.Space[Any]) -> spaces.Dict:
    """Return the space of observations that have one more part, under a name that none of them has."""
    parts = {key or SINGLE: part for key, part in leaf_spaces(observation_space).items()}
    return spaces.Dict({**parts, _free(name, parts): space})


def with_part(observation: Observation, name: str, value: Tensor) -> dict[str, Tensor]:
    """Join an observation and one more part into what `space_with` describes."""
    parts = observation if isinstance(observation, Mapping) else {SINGLE: observation}
    return {**parts, _free(name, parts): value}


def _free(name: str, taken: Container[str]) -> str:
    """Return a name that an observation's own parts don't have: `action`, or else `action_`."""
    while name in taken:
        name += "_"
    return name


def space_with_action(observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> spaces.Dict:
    """Return the space that a critic of observations and actions reads."""
    return space_with(observation_space, ACTION, action_space)


def with_action(observation: Observation, action: Tensor) -> dict[str, Tensor]:
    """Join an observation and an action into what `space_with_action` describes."""
    return with_part(observation, ACTION, action)


class Ensemble(nn.Module):
    """Several networks on the same input: (B, ...) → (E, B, outputs)."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    @staticmethod
    def of(members: Sequence[nn.Module]) -> nn.Module:
        """Return the fastest form of these networks together: fully connected ones become one batched product a layer."""
        plain: Any = members
        if len(members) > 1 and all(type(member) is MLP and not list(member.encoder.parameters()) for member in members):
            whole: nn.Module = BatchedMLP(plain)
        else:
            batched = next((kind for kind in (BatchedNormedMLP, BatchedResidualMLP) if kind.fits(members)), Ensemble)
            group = group_of_all(members)
            if group is not None and BatchedResidualMLP.fits([member.network for member in plain]):
                whole = GroupReader(BatchedResidualMLP([member.network for member in plain]), *group)
            else:
                whole = batched(plain)
        return remember(whole, recipe_with_parts("ensemble", members))

    def forward(self, observation: Observation) -> Tensor:
        """(B, ...) → (E, B, outputs)"""
        return torch.stack([member(observation) for member in self.members])


class BatchedMLP(nn.Module):
    """MLPs of one shape as one: weights (E, inputs, outputs), a single batched matrix product a layer."""

    def __init__(self, members: Sequence[MLP]) -> None:
        super().__init__()
        self.encoder = members[0].encoder
        layers = [[layer for layer in member.layers if isinstance(layer, nn.Linear)] for member in members]
        alike = list(zip(*layers, strict=True))
        self.weights = nn.ParameterList(torch.stack([layer.weight.detach().T for layer in each]) for each in alike)
        self.biases = nn.ParameterList(torch.stack([layer.bias.detach()[None] for layer in each]) for each in alike)
        self.activate = next((layer for layer in members[0].layers if not isinstance(layer, nn.Linear)), nn.Identity())

    def forward(self, observation: Observation) -> Tensor:
        """(B, ...) → (E, B, outputs)"""
        values = self.encoder(observation).expand(len(self.weights[0]), -1, -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values, weight)
            values = self.activate(values) if layer < last else values
        return values


def target_of(network: nn.Module) -> nn.Module:
    """Return a copy that follows a network, is never trained itself, and takes no statistics of its own."""
    return deepcopy(network).requires_grad_(False).eval()


class Follow:
    """Moves target networks towards the trained ones: target ← target + τ · (trained − target), in place.

    Statistics that a network keeps beside its weights, as a batch norm does, are averages over time already, and are copied.
    """

    def __init__(self, trained: Sequence[nn.Module], targets: Sequence[nn.Module], tau: float) -> None:
        self._tau = tau
        self._from, self._to = ([p.detach() for module in side for p in module.parameters()] for side in (trained, targets))
        self._statistics, self._copies = (_kept_beside_weights(side) for side in (trained, targets))
        self.tensors = [*self._to, *self._copies]
        """Everything that following changes."""

    def __call__(self) -> None:
        """Take one step of following."""
        if self._tau == 1:
            torch._foreach_copy_(self._to, self._from)  # type: ignore[reportPrivateImportUsage] # no public name
        else:
            torch._foreach_lerp_(self._to, self._from, self._tau)  # type: ignore[reportPrivateImportUsage] # no public name
        if self._copies:
            torch._foreach_copy_(self._copies, self._statistics)  # type: ignore[reportPrivateImportUsage] # no public name


def _kept_beside_weights(networks: Sequence[nn.Module]) -> list[Tensor]:
    """Return the tensors in networks' states that are no parameters."""
    parameters = {parameter.data_ptr() for network in networks for parameter in network.parameters()}
    states = [value for network in networks for value in network.state_dict().values()]
    return [value for value in states if isinstance(value, Tensor) and value.data_ptr() not in parameters]

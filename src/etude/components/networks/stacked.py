"""One network with many sets of weights: row i of an observation goes through the network with the i-th set.

stacked = Stacked(network)
forward = stacked.bound(weights)        # (N, size): each row all weights of one network
forward(observation)                    # (N, ...) → (N, outputs)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from etude.components.networks.mlp import MLP
from etude.compute.trees import map_tree
from etude.environments.vector import Observation

Forward = Callable[[Observation], Tensor]
"""Observations (N, ...) to outputs (N, outputs)."""


class Stacked:
    """A network's weights as one vector, and the network with as many such vectors as there are rows."""

    def __init__(self, network: nn.Module) -> None:
        """What of its parameters does not learn stays the same for all."""
        self._network = network
        self._weights = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        self.size = sum(weights.numel() for weights in self._weights.values())
        """How many weights it has."""

    def read(self) -> Tensor:
        """Return the network's own weights, copied. (size,)"""
        return nn.utils.parameters_to_vector([*self._weights.values()]).detach()

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Give the network other weights. (size,)"""
        for weights, part in zip(self._weights.values(), self._parts(vector).values(), strict=True):
            weights.copy_(part)

    def bound(self, vectors: Tensor) -> Forward:
        """Return the network with these weights, (N, size), a set for each row."""
        weights = self._parts(vectors)
        network = self._network
        if type(network) is MLP and not [*network.encoder.parameters()]:
            return _layer_by_layer(network, weights)

        def one(own: dict[str, Tensor], observation: Observation) -> Tensor:
            return functional_call(network, own, (map_tree(lambda part: part[None], observation),))[0]

        together = vmap(one)
        return lambda observation: together(weights, observation)

    def _parts(self, vectors: Tensor) -> dict[str, Tensor]:
        """(..., size) → each parameter (..., *shape)"""
        sizes = [weights.numel() for weights in self._weights.values()]
        parts = zip(self._weights.items(), vectors.split(sizes, -1), strict=True)
        return {name: part.reshape(*vectors.shape[:-1], *weights.shape) for (name, weights), part in parts}


def _layer_by_layer(network: MLP, weights: dict[str, Tensor]) -> Forward:
    """The same for plain layers by batched products, which takes a tenth of the time of the general way."""
    layers: list[Callable[[Tensor], Tensor]] = []
    for index, layer in enumerate(network.layers):
        if isinstance(layer, nn.Linear):
            matrix = weights[f"layers.{index}.weight"].transpose(1, 2).contiguous()
            layers.append(_product(matrix, weights[f"layers.{index}.bias"][:, None]))
        else:
            layers.append(layer)

    def forward(observation: Observation) -> Tensor:
        values = network.encoder(observation)[:, None]
        for layer in layers:
            values = layer(values)
        return values[:, 0]

    return forward


def _product(matrix: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda values: torch.baddbmm(bias, values, matrix)

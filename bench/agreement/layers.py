"""Etude's networks as plain layers, {"critic.0.2.weight": ...}, in the order of inputs that other libraries use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from etude.components.critics import BatchedMLP, with_action

Arrays = dict[str, np.ndarray]


def linear_layers(
    name: str, network: Any, inputs: tuple[int, int] | None = None, of: Callable[[Tensor], Tensor] = lambda p: p
) -> Arrays:
    """Return weights (outputs, inputs) and biases of an MLP, or of each of several that run as one.

    `of` chooses what is returned of a parameter: itself, or its gradient. `inputs` are the sizes of observation and action
    where the network reads both: Etude joins the parts of a Dict by name, others put the observation first.
    """
    order = slice(None) if inputs is None else _observation_first(network, *inputs)
    found: Arrays = {}
    if isinstance(network, BatchedMLP):
        for layer, (weights, biases) in enumerate(zip(network.weights, network.biases, strict=True)):
            for member, (weight, bias) in enumerate(zip(of(weights), of(biases), strict=True)):
                found[f"{name}.{member}.{layer}.weight"] = _array(weight.T)
                found[f"{name}.{member}.{layer}.bias"] = _array(bias[0])
        first = [key for key in found if key.endswith(".0.weight")]
    else:
        linears = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        for position, linear in enumerate(linears):
            found[f"{name}.{position}.weight"] = _array(of(linear.weight))
            found[f"{name}.{position}.bias"] = _array(of(linear.bias))
        first = [f"{name}.0.weight"]
    return found | {key: found[key][:, order] for key in first}


def _observation_first(network: Any, observation: int, action: int) -> list[int]:
    """Where each entry of (observation, action) lies among the network's inputs."""
    marks = torch.arange(observation + action, dtype=torch.float32)
    joined = network.encoder(with_action(marks[None, :observation], marks[None, observation:]))[0]
    return joined.argsort().tolist()


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()

"""Modules in computations that need no gradients of weights: dreams, what is said of them, the steps of a recurrence."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

Module = TypeVar("Module", bound=nn.Module)
lists: Any = torch  # whose operations on lists of tensors have no public names


def frozen(module: Module) -> Module:
    """Return a twin of a module whose weights have no gradients.

    It shares the module's memory. Within autocast it has weights of its own, rounded once, as they are now: otherwise a cell
    that is called 64 times would round them as often.
    """
    parameters = list(module.parameters())
    device = parameters[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    twins: dict[torch.dtype | None, Module] = vars(module).setdefault("_frozen_twins", {})
    if dtype not in twins:
        twins[dtype] = _twin(module, dtype)
    if dtype is not None:  # by `data`: to autograd, what is written again within an update is what it was
        lists._foreach_copy_([own.data for own in twins[dtype].parameters()], [parameter.data for parameter in parameters])
    return twins[dtype]


def held(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a network says, with gradients of what it is told and none of its weights."""
    if not torch.is_grad_enabled():
        return network(inputs)
    return functional_call(network, {name: p.detach() for name, p in network.named_parameters()}, (inputs,))


def _twin(module: Module, dtype: torch.dtype | None) -> Module:
    def without_gradients(parameter: Tensor) -> nn.Parameter:
        weights = parameter.detach() if dtype is None else torch.empty_like(parameter, dtype=dtype)
        return nn.Parameter(weights, requires_grad=False)

    memo: dict[int, Any] = {id(parameter): without_gradients(parameter) for parameter in module.parameters()}
    memo |= {id(buffer): buffer for buffer in module.buffers()}
    memo |= {id(twins): {} for part in module.modules() if (twins := vars(part).get("_frozen_twins")) is not None}
    return copy.deepcopy(module, memo)

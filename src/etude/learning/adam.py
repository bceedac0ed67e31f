"""Adam as a function of tensors, for updates that are compiled whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer


def is_adam(optimizer: Optimizer) -> bool:
    """Whether this optimiser's step is the one that `adam_` takes."""
    return type(optimizer) in (Adam, AdamW) and not any(
        group["amsgrad"] or group["maximize"] or (group["weight_decay"] and type(optimizer) is Adam)
        for group in optimizer.param_groups
    )


def adam_state(objective: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return parameters, moments and settings by parameter name, sharing memory with the optimiser's own."""
    names = {parameter: name for name, parameter in objective.named_parameters()}
    state: dict[str, Any] = {key: {} for key in ("parameters", "first", "second", "step", "rate", "options", "group")}
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            own = optimizer.state[parameter]
            if not own:
                own["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                own["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                own["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            name = names[parameter]
            state["parameters"][name] = parameter.detach()
            state["first"][name], state["second"][name], state["step"][name] = own["exp_avg"], own["exp_avg_sq"], own["step"]
            state["rate"][name] = group.get("rate", group["lr"])  # where `lr` is a number, the tensor it is written from
            state["options"][name] = (*group["betas"], group["eps"], group["weight_decay"])
            state["group"][name] = str(group.get("name", index))
    return state


def adam_scalars(state: dict[str, Any], name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return a parameter's next step count, its step size and the root of its second bias correction, all 0-dim.

    They are the same for every parameter with the same rate and options, and computed once for all of these: a compiler would
    put the powers into each parameter's loop, where they cost as much as all the rest.
    """
    beta1, beta2, _, _ = state["options"][name]
    count = state["step"][name] + 1
    return count, state["rate"][name] / (1 - beta1**count), (1 - beta2**count).sqrt()


def adam_(
    state: dict[str, Any], name: str, gradient: Tensor, skip: Tensor | None, scalars: tuple[Tensor, Tensor, Tensor]
) -> None:
    """AdamW (Loshchilov and Hutter 2019) on one parameter, in place; the arithmetic of torch's own, in its order."""
    parameter, first, second = state["parameters"][name], state["first"][name], state["second"][name]
    beta1, beta2, eps, weight_decay = state["options"][name]
    count, size, correction = scalars
    mean = first + (gradient - first) * (1 - beta1)
    square = second * beta2 + gradient * gradient * (1 - beta2)
    denominator = square.sqrt() / correction + eps
    kept = parameter * (1 - state["rate"][name] * weight_decay) if weight_decay else parameter
    updates = ((parameter, kept - size * (mean / denominator)), (first, mean), (second, square), (state["step"][name], count))
    for old, new in updates:
        old.copy_(new if skip is None else torch.where(skip > 0, old, new))

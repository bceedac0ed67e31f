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
            state["rate"][name] = group["lr"]
            state["options"][name] = (*group["betas"], group["eps"], group["weight_decay"])
            state["group"][name] = str(group.get("name", index))
    return state


def adam_(state: dict[str, Any], name: str, gradient: Tensor, skip: Tensor | None) -> None:
    """AdamW (Loshchilov and Hutter 2019) on one parameter, in place; the arithmetic of torch's own, in its order."""
    parameter, first, second = state["parameters"][name], state["first"][name], state["second"][name]
    step, rate = state["step"][name], state["rate"][name]
    beta1, beta2, eps, weight_decay = state["options"][name]
    count = step + 1
    mean = first + (gradient - first) * (1 - beta1)
    square = second * beta2 + gradient * gradient * (1 - beta2)
    denominator = square.sqrt() / (1 - beta2**count).sqrt() + eps
    moved = parameter * (1 - rate * weight_decay) - (rate / (1 - beta1**count)) * (mean / denominator)
    updates = ((parameter, moved), (first, mean), (second, square), (step, count))
    for old, new in updates:
        old.copy_(new if skip is None else torch.where(skip > 0, old, new))

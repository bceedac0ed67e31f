"""Optimisers by name, and one gradient step that can be skipped without asking the host."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from etude.compute.lazy_compiler import leave_compiler_out
from etude.config.registry import optimizers
from etude.config.validate import Part
from etude.errors import UserError
from etude.learning.rules import LaProp

_SURE = {"eps", "weight_decay", "fused"}
"""What Adam looks at before its first step; that step would import torch's compiler, for a second and a half."""


def build_optimizer(part: Part, groups: Mapping[str, tuple[Iterable[nn.Parameter], Tensor]]) -> Optimizer:
    """Build the chosen optimiser over named groups of (parameters, learning rate).

    Learning rates are tensors, so that schedules and adaptation change them in place, on the device.
    """
    leave_compiler_out()
    cls = optimizers.resolve(part.type)
    options = dict(part.options)
    _check(cls, part)
    accepted = inspect.signature(cls).parameters
    if "fused" in accepted and "fused" not in options and not (options.get("foreach") or options.get("differentiable")):
        options["fused"] = True
    _try(cls, options, part)
    if issubclass(cls, LaProp) or (options.get("fused") and "lr" in accepted):
        if "capturable" in accepted and any(lr.device.type == "cuda" for _, lr in groups.values()):
            options.setdefault("capturable", True)  # its step may become part of a CUDA graph
        settings = [{"params": list(p), "lr": lr, "name": name} for name, (p, lr) in groups.items()]
        return cls(settings, **options)
    # Optimisers from elsewhere may not take tensor rates; theirs are written before every step instead.
    settings = [{"params": list(p), "lr": float(lr), "rate": lr, "name": name} for name, (p, lr) in groups.items()]
    return cls(settings, **options)


def _check(cls: Any, part: Part) -> None:
    if not isinstance(cls, type) or not issubclass(cls, Optimizer):
        raise UserError(f"algorithm.optimizer.type={part.type}: is no optimiser of torch's kind")
    if part.options.get("maximize"):
        raise UserError("algorithm.optimizer.maximize=true: every algorithm's losses are to become smaller; leave it out")


def _try(cls: Any, options: Mapping[str, Any], part: Part) -> None:
    """Take a step with a few weights that are nobody's: what an optimiser can't do is said before the run begins."""
    weights = nn.Parameter(torch.zeros(2, 2))
    weights.grad = torch.ones(2, 2)
    try:
        made = cls([{"params": [weights], "lr": 1e-3}], **options)
        if cls not in (torch.optim.Adam, torch.optim.AdamW) or not _SURE.issuperset(options):
            made.step()
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(
            f"algorithm.optimizer: {part.type} with {part.options or 'no options'} can't be used: {said}"
        ) from error


def part_of(optimizer: Optimizer, *names: str) -> Optimizer:
    """Return an optimiser of some groups of parameters, that has moments and rates in common with the whole."""
    part = copy.copy(optimizer)
    part.state = optimizer.state
    part.param_groups = [group for group in optimizer.param_groups if group["name"] in names]
    return part


def clipped_step(
    optimizer: Optimizer,
    max_grad_norm: float | None,
    skip: Tensor | None = None,
    *,
    skip_non_finite: bool = False,
    norm: Tensor | None = None,
    norms: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Clip gradients to a total norm, step, and return the norm before clipping. Where `skip` is 1, nothing changes.

    With the `norms` of named groups each group is clipped by itself.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = gradient_norms(optimizer)[""] if norm is None else norm
    if skip_non_finite:
        skip = or_non_finite(skip, norm)
    if max_grad_norm is not None and norms is not None:
        for group in optimizer.param_groups:
            own = [parameter for parameter in group["params"] if parameter.grad is not None]
            nn.utils.clip_grads_with_norm_(own, max_grad_norm, norms[group["name"]])
    elif max_grad_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, max_grad_norm, norm)
    _write_rates(optimizer)
    if skip is None:
        optimizer.step()
    elif isinstance(optimizer, LaProp):
        optimizer.step(skip=skip)
    elif _skips_on_device(optimizer):
        # Fused optimisers skip a step on the device when told that a gradient overflowed: moments and step counts too.
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined] # read by fused kernels
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined] # a later step without `skip` must not see it
    elif not bool(skip):
        optimizer.step()
    return norm


def gradient_norms(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the norm of the whole gradient, under no name, and that of each named group if there are several."""
    owned = [[p.grad for p in group["params"] if p.grad is not None] for group in optimizer.param_groups]
    if not any(owned):
        return {"": torch.zeros(())}
    each = torch.stack(torch._foreach_norm([gradient for own in owned for gradient in own]))  # type: ignore[reportPrivateImportUsage] # torch has no public name for it
    norms = {"": torch.linalg.vector_norm(each)}
    if len(owned) > 1:
        names = [str(group.get("name", index)) for index, group in enumerate(optimizer.param_groups)]
        parts = each.split([len(own) for own in owned])
        norms |= {name: torch.linalg.vector_norm(part) for name, part in zip(names, parts, strict=True)}
    return norms


def or_non_finite(skip: Tensor | None, norm: Tensor) -> Tensor:
    """Return 1 where a step is to be skipped anyway, or because its gradient is NaN or infinite."""
    broken = (~torch.isfinite(norm)).float()
    return broken if skip is None else torch.maximum(skip, broken)


def _skips_on_device(optimizer: Optimizer) -> bool:
    # SGD's momentum begins as uninitialised memory, to be filled by a first step that is really taken.
    empty_momentum = any(group.get("momentum") for group in optimizer.param_groups) and not optimizer.state
    return getattr(optimizer, "_step_supports_amp_scaling", False) and not empty_momentum


def _write_rates(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        if "rate" in group:
            group["lr"] = float(group["rate"])


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimiser's moments and rates as tensors and plain values."""
    state = optimizer.state_dict()
    keep = ("lr", "rate", "name", "params")
    return {
        "state": state["state"],
        "groups": [{key: value for key, value in group.items() if key in keep} for group in state["param_groups"]],
    }


@torch.no_grad()
def load_optimizer_state(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Restore moments and rates, in place where tensors exist already, so that captured graphs stay valid."""
    parameters = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    moments = {int(index): values for index, values in saved["state"].items()}
    for index, (parameter, group) in enumerate(parameters):
        if index not in moments:
            optimizer.state.pop(parameter, None)
            continue
        current = optimizer.state[parameter]
        for key, value in moments[index].items():
            _check_moment(optimizer, index, parameter, key, value)
            if isinstance(current.get(key), Tensor) and isinstance(value, Tensor):
                current[key].copy_(value)
            elif isinstance(value, Tensor):
                # Step counts live beside the parameter only where the kernel that reads them does.
                beside = isinstance(optimizer, LaProp) or group.get("fused") or group.get("capturable")
                on_host = key == "step" and not beside
                current[key] = value.to("cpu" if on_host else parameter.device, copy=True)
            else:
                current[key] = value
    for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
        for key in ("lr", "rate"):
            if isinstance(group.get(key), Tensor):
                group[key].copy_(values[key])
            elif key in group:
                group[key] = values[key]


def _check_moment(optimizer: Optimizer, index: int, parameter: Tensor, key: str, value: object) -> None:
    """Refuse what the optimiser could not go on with: a checkpoint can come from a stranger."""
    where = f"optimiser state {str(key)[:60]!r} of parameter {index}"
    if isinstance(value, Tensor):
        # A moment is of the parameter's shape, or of one that is spread over it (Adafactor's rows and columns).
        sizes = zip(reversed(value.shape), reversed(parameter.shape), strict=False)
        if (value.ndim > parameter.ndim and value.numel() != 1) or any(size not in (1, its) for size, its in sizes):
            raise ValueError(f"{where}: of shape {tuple(value.shape)}, and the parameter is of {tuple(parameter.shape)}")
    elif isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"{where}: {type(value).__name__} is neither a tensor nor a number")
    elif key == "step" and type(optimizer).__module__.startswith(("torch.optim", "etude.")):
        raise ValueError(f"{where}: must be a tensor")

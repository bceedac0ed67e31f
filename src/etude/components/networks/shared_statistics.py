"""Batch norm over the rows of all processes that train together, as if they were one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from etude.compute.world import World


def share_statistics(modules: Iterable[nn.Module], world: World) -> None:
    """Let every batch norm among modules take its statistics of all ranks' rows while it learns."""
    for module in modules:
        if isinstance(module, _BatchNorm) and not isinstance(module.forward, partial):
            module.forward = partial(_forward, module, module.forward, world)  # type: ignore[method-assign] # this one's alone


def _forward(norm: _BatchNorm, alone: Callable[[Tensor], Tensor], world: World, rows: Tensor) -> Tensor:
    """torch's own formula: normalised by 1/n, remembered by 1/(n - 1). Rows are (B, C, ...)."""
    if not norm.training and norm.running_mean is not None:
        return alone(rows)
    others = [dim for dim in range(rows.ndim) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(rows.ndim)]
    count = world.size * rows.numel() // rows.shape[1]
    mean = world.sum(rows.sum(others)) / count
    centred = rows - mean.view(shape)
    var = world.sum(centred.square().sum(others)) / count
    if norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None:
        with torch.no_grad():
            norm.num_batches_tracked += 1
            share = norm.momentum if norm.momentum is not None else 1 / norm.num_batches_tracked
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(var * (count / (count - 1)), share)
    normal = centred * (var + norm.eps).rsqrt().view(shape)
    return normal if norm.weight is None else normal * norm.weight.view(shape) + norm.bias.view(shape)

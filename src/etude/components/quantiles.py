"""The loss that fits quantiles of a distribution to samples of it."""

from __future__ import annotations

import torch
from torch import Tensor


def quantile_huber_losses(values: Tensor, targets: Tensor, levels: Tensor) -> Tensor:
    """(..., Q) quantiles at `levels` (Q,), and (..., K) samples → (..., Q): how badly each one fits (Dabney et al. 2018).

    The error of each pair goes through Huber's loss. It is weighted by the quantile's level where the sample lies above, and
    by what the level lacks to 1 where it lies below: what lies above a high quantile counts more than what lies below it.
    """
    errors = targets.unsqueeze(-2) - values.unsqueeze(-1)  # (..., Q, K)
    size = errors.abs()
    huber = torch.where(size <= 1, 0.5 * errors.square(), size - 0.5)
    weights = (levels.unsqueeze(-1) - (errors.detach() < 0).to(errors.dtype)).abs()
    return (weights * huber).mean(-1)


def quantile_levels(count: int) -> Tensor:
    """(count,): the middles of equal parts of [0, 1]; of all levels, they describe a distribution with the least error."""
    return (torch.arange(count) + 0.5) / count

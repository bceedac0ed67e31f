"""Stein variational gradients (Liu and Wang 2016): where to move particles so that together they follow a density.

    φ(y) = mean over x of  κ(x, y) ∇ₓ log p(x) + ∇ₓ κ(x, y)

The first term draws particles to where the density is high, the second pushes them apart.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BANDWIDTH_FLOOR = 1e-3
"""So that particles in one place still have a kernel."""


def median_kernel(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(..., X, D) and (..., Y, D) → κ (..., X, Y) and its gradient with respect to x (..., X, Y, D).

    κ(x, y) = exp(−‖x − y‖² / h), where h is the median squared distance over log X, so that a particle's own pull and that of
    all others weigh about the same. The bandwidth counts as a constant.
    """
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    squared = apart.square().sum(-1)
    pairs = squared.detach().flatten(-2).sort(dim=-1).values
    median = pairs[..., (pairs.shape[-1] - 1) // 2]
    bandwidth = (median / math.log(x.shape[-2])).clamp(min=BANDWIDTH_FLOOR)[..., None, None]
    kernel = (-squared / bandwidth).exp()
    return kernel, (-2 * kernel / bandwidth).unsqueeze(-1) * apart


def stein_direction(x: Tensor, y: Tensor, score: Tensor) -> Tensor:
    """Return where to move each y (..., Y, D), given ∇ log p at each x (..., X, D)."""
    kernel, gradient = median_kernel(x, y)
    return (kernel.unsqueeze(-1) * score.unsqueeze(-2) + gradient).mean(-3)


def squash_correction(action: Tensor) -> Tensor:
    """(..., D) → (...): log of tanh's slope where it gives this action, kept finite at the bounds."""
    return torch.log(1 - action.square() + 1e-6).sum(-1)

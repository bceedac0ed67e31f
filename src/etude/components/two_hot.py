"""Numbers of any height as a distribution over fixed values, so that a loss never sees how large they are (Hafner et al. 2023).

    symlog(x) = sign(x) · ln(1 + |x|)            near 0 the number itself, far from it the logarithm
    two-hot:    x between bins b[k] ≤ x ≤ b[k+1]:  p[k] = (b[k+1] − x) / (b[k+1] − b[k]),  p[k+1] = 1 − p[k]

DreamerV3 spaces its bins evenly in symlog and weighs them as they are; TD-MPC2 does both in symlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn


def symlog(x: Tensor) -> Tensor:
    """Squash symmetrically by the logarithm."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """Undo `symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """A number as the logits of `size` bins, at ± `reach` in symlog at the ends; always computed in full precision."""

    bins: Tensor

    def __init__(self, size: int = 255, reach: float = 20.0, weighs: Literal["as is", "in symlog"] = "as is") -> None:
        super().__init__()
        self.size, self._in_symlog = size, weighs == "in symlog"
        half = torch.linspace(-reach, 0, size // 2 + 1, dtype=torch.float64)[: size // 2]
        middle = torch.zeros(size % 2, dtype=torch.float64)
        if size % 2 == 0:
            half = torch.linspace(-reach, reach, size, dtype=torch.float64)[: size // 2]
        bins = torch.cat([half, middle, -half.flip(0)])  # exactly symmetric
        self.register_buffer("bins", (bins if self._in_symlog else symexp(bins)).float(), persistent=False)

    def mean(self, logits: Tensor) -> Tensor:
        """(..., size) → (...): the expected number; exactly 0 where all bins are as likely.

        Bins are added in pairs, as the difference of two probabilities: a plain sum of values up to ± e^20 leaves a rest of
        thousands. The one in the middle is 0.
        """
        half, probs = self.size // 2, logits.float().softmax(-1)
        apart = probs[..., self.size - half :] - probs[..., :half].flip(-1)
        total = (apart * self.bins[self.size - half :]).sum(-1)
        return symexp(total) if self._in_symlog else total

    def encode(self, x: Tensor) -> Tensor:
        """(...) → (..., size): the probabilities whose mean it is; beyond the last bin, that bin."""
        x = symlog(x.float()) if self._in_symlog else x.float()
        x = x.clamp(self.bins[0], self.bins[-1]).contiguous()
        high = torch.searchsorted(self.bins, x).clamp(1, self.size - 1).unsqueeze(-1)
        low = high - 1
        at_low, at_high = self.bins[low], self.bins[high]
        share = (x.unsqueeze(-1) - at_low) / (at_high - at_low)
        empty = torch.zeros(*x.shape, self.size, device=x.device)
        return empty.scatter(-1, low, 1 - share).scatter(-1, high, share)

    def loss(self, logits: Tensor, *targets: Tensor, weights: Sequence[float] = ()) -> Tensor:
        """(..., size), (...) → (...): the cross-entropy to numbers, which are taken as they are, by their weights."""
        total = self.encode(targets[0].detach())
        for weight, x in zip(weights, targets[1:], strict=True):
            total = total + weight * self.encode(x.detach())
        return -(total * logits.float().log_softmax(-1)).sum(-1)


class Squared(nn.Module):
    """A number as itself, learnt by half its squared error: the logarithm of a normal of variance 1, but for a constant."""

    size = 1

    def mean(self, outputs: Tensor) -> Tensor:
        """(..., 1) → (...)"""
        return outputs.float().squeeze(-1)

    def loss(self, outputs: Tensor, *targets: Tensor, weights: Sequence[float] = ()) -> Tensor:
        """(..., 1), (...) → (...): to numbers, by their weights."""
        number = self.mean(outputs)
        total = 0.5 * (number - targets[0].detach()).square()
        for weight, x in zip(weights, targets[1:], strict=True):
            total = total + 0.5 * weight * (number - x.detach()).square()
        return total

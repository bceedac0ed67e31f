"""How large returns are, by what was collected: rewards are divided by it, so that returns fit between fixed bounds.

    G ← γ G + r        of each environment, 0 after an end
    divisor = max(standard deviation of all G, largest |G| / reach)

Rewards that are stored stay as they are, and are divided when they are learnt from: old and new ones by the same number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from etude.components.normalizers import RunningMoments

LEAST = 1e-6


class ReturnBound(nn.Module):
    """Running statistics of discounted returns, in tensors that losses may read."""

    running_return: Tensor
    largest: Tensor
    divisor: Tensor

    def __init__(self, num_envs: int, gamma: float, reach: float) -> None:
        super().__init__()
        self.gamma, self.reach = gamma, reach
        self.moments = RunningMoments()
        self.register_buffer("running_return", torch.zeros(num_envs, dtype=torch.float64))
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64))
        self.register_buffer("divisor", torch.ones(()))

    @torch.no_grad()
    def update(self, rewards: Tensor, ended: Tensor) -> None:
        """Take in steps (T, N), in order: rewards, and which were the last of their episodes."""
        for reward, ends in zip(rewards, ended, strict=True):  # step by step: however they are cut, the same to the bit
            self.running_return.mul_(self.gamma).add_(reward)
            self.moments.update(self.running_return)
            self.largest.copy_(torch.maximum(self.largest, self.running_return.abs().max()))
            self.running_return.mul_(~ends)
        bound = torch.maximum(self.moments.var.sqrt(), self.largest / self.reach)
        self.divisor.copy_(bound.clamp(min=LEAST))

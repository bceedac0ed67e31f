"""Planning by trial in imagination: draw action sequences, keep the best, draw around those (CEM; MPPI, Williams et al. 2015).

    candidates   mean + std · noise, cut at ±1; and proposals, such as what a policy would do
    elites       those of the highest value; weights softmax(temperature · value)
    mean, std    of the elites, by their weights; again, `iterations` times

With a temperature of 0 all elites count alike: the cross-entropy method. A plan knows nothing of what is imagined: it is
given a function that says what sequences of actions are worth. N tasks are planned for at once, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Value = Callable[[Tensor], Tensor]
"""Action sequences (N, S, H, A) → what each is worth (N, S); asked once for each iteration."""


class Plan(NamedTuple):
    """What came out of planning."""

    mean: Tensor
    """(N, H, A)"""
    std: Tensor
    """(N, H, A)"""
    elites: Tensor
    """The best sequences of the last iteration. (N, K, H, A)"""
    weights: Tensor
    """How much each of them counts; 1 together. (N, K)"""
    value: Tensor
    """What they are worth, by these weights. (N,)"""

    @classmethod
    def nothing(cls, mean: Tensor, std: float) -> Plan:
        """Return where planning begins: a mean (N, H, A), the same deviation everywhere, and no elites yet."""
        none = mean.new_zeros(mean.shape[0], 0)
        return cls(mean, torch.full_like(mean, std), none[:, :, None, None], none, none[:, 0:0])

    def draw(self, uniform: Tensor) -> Tensor:
        """Return one elite's first action for each task, by weight, from numbers in [0, 1): (N,) → (N, A)"""
        below = self.weights.cumsum(-1) < uniform[:, None]
        index = below.sum(-1).clamp(max=self.weights.shape[1] - 1)  # a sum of weights may fall short of 1 by a rounding
        return self.elites[:, :, 0].gather(1, index[:, None, None].expand(-1, 1, self.elites.shape[-1]))[:, 0]


@dataclass(frozen=True)
class Planner:
    """MPPI, or with a temperature of 0 the cross-entropy method."""

    elites: int
    temperature: float = 0.5
    """How much more the better elites count, per unit of value."""
    min_std: float | Tensor = 0.05
    """A tensor may change from plan to plan."""
    max_std: float = 2.0
    """Where the first iteration begins, too."""
    momentum: float = 0.0
    """How much of its mean an iteration keeps."""

    def __call__(self, value: Value, mean: Tensor, noise: Tensor, proposals: Tensor | None = None) -> Plan:
        """Plan from a first mean (N, H, A), with standard normal noise (iterations, N, S, H, A) and proposals (N, P, H, A)."""
        std, plan = torch.full_like(mean, self.max_std), None
        for each in noise:
            plan = self.improved(value, mean, std, each, proposals)
            mean, std = plan.mean, plan.std
        assert plan is not None, "planning takes at least one iteration"
        return plan

    def improved(self, value: Value, mean: Tensor, std: Tensor, noise: Tensor, proposals: Tensor | None) -> Plan:
        """Take one iteration: draw around a mean (N, H, A) by noise (N, S, H, A), and return what its elites say."""
        candidates = torch.addcmul(mean[:, None], std[:, None], noise).clamp(-1, 1)
        if proposals is not None:
            candidates = torch.cat([proposals, candidates], 1)
        best, index = value(candidates).topk(self.elites, dim=1)
        weights = (self.temperature * best).softmax(-1)  # (N, K)
        elites = candidates.gather(1, index[:, :, None, None].expand(-1, -1, *candidates.shape[2:]))
        share = weights[:, :, None, None]
        middle = (share * elites).sum(1)
        std = (share * (elites - middle[:, None]).square()).sum(1).sqrt().clamp(max=self.max_std).clamp(min=self.min_std)
        mean = torch.lerp(middle, mean, self.momentum) if self.momentum else middle
        return Plan(mean, std, elites, weights, (weights * best).sum(1))


def shifted(mean: Tensor, is_first: Tensor) -> Tensor:
    """Return where planning begins one step later: the rest of the last plan and a 0, and all 0 where an episode begins."""
    later = torch.cat([mean[:, 1:], torch.zeros_like(mean[:, :1])], 1)
    return later.masked_fill(is_first[:, None, None], 0.0)

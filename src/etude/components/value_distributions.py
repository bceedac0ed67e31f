"""What a network says of an action's return: its mean, a histogram over fixed values, or quantiles.

All three are `size` numbers an action. Of these follow `values`, which actions are chosen by, and `errors`, what is to be
minimised of a prediction (B, size) when the return is known to be `reward + discount · following`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from etude.components.quantiles import quantile_huber_losses, quantile_levels


class ValueDistribution(nn.Module, ABC):
    """How a network's outputs describe the return of each action."""

    size: int
    """How many outputs an action has."""

    @abstractmethod
    def values(self, outputs: Tensor) -> Tensor:
        """(..., size) → (...): the expected return."""

    @abstractmethod
    def errors(self, outputs: Tensor, following: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's loss (B,), and how wrong it is (B,), at least 0: what replay is prioritised by.

        `outputs` (B, size) are of the action that was taken, `following` (B, size) of the best action after it; the
        latter, `reward` and `discount` (B,) are taken as they are.
        """


class MeanValue(ValueDistribution):
    """The expected return alone (Mnih et al. 2015): Huber's loss, so that no error's gradient exceeds 1."""

    size = 1

    def values(self, outputs: Tensor) -> Tensor:
        """(..., 1) → (...)"""
        return outputs.squeeze(-1)

    def errors(self, outputs: Tensor, following: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Huber's loss, and the size of the temporal-difference error."""
        value = self.values(outputs)
        target = (reward + discount * self.values(following)).detach()
        return functional.huber_loss(value, target, reduction="none"), (target - value).detach().abs()


class CategoricalValue(ValueDistribution):
    """Probabilities of `atoms` returns evenly spaced from `low` to `high` (C51, Bellemare et al. 2017)."""

    support: Tensor

    def __init__(self, atoms: int, low: float, high: float) -> None:
        super().__init__()
        self.size = atoms
        self._low, self._high, self._gap = low, high, (high - low) / (atoms - 1)
        self.register_buffer("support", torch.linspace(low, high, atoms), persistent=False)

    def values(self, outputs: Tensor) -> Tensor:
        """(..., atoms) → (...)"""
        return (outputs.softmax(-1) * self.support).sum(-1)

    def project(self, probability: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Return the distribution of `reward + discount · return` (B, atoms), on the same atoms.

        Each shifted atom shares its probability between its two neighbours by nearness; beyond the ends it goes to the end.
        As one product, without scattering: of an atom at place b, clamp(i + 1 - b, 0, 1) lies at places 0 to i.
        """
        places = ((reward[:, None] + discount[:, None] * self.support).clamp(self._low, self._high) - self._low) / self._gap
        ends = torch.arange(1, self.size + 1, device=places.device, dtype=places.dtype)[:, None]
        up_to = ((ends - places[:, None, :]).clamp(0, 1) * probability[:, None, :]).sum(-1)  # (B, to), of (B, to, from)
        return torch.cat([up_to[:, :1], up_to[:, 1:] - up_to[:, :-1]], 1)

    def errors(self, outputs: Tensor, following: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and the divergence from the target, as Rainbow prioritises (Hessel et al. 2018)."""
        target = self.project(following.softmax(-1), reward, discount).detach()
        loss = -(target * outputs.log_softmax(-1)).sum(-1)
        entropy = -torch.xlogy(target, target).sum(-1)
        return loss, (loss.detach() - entropy).clamp(min=0)


class QuantileValue(ValueDistribution):
    """Returns that are exceeded with evenly spaced probabilities (QR-DQN, Dabney et al. 2018)."""

    levels: Tensor

    def __init__(self, quantiles: int) -> None:
        super().__init__()
        self.size = quantiles
        self.register_buffer("levels", quantile_levels(quantiles), persistent=False)

    def values(self, outputs: Tensor) -> Tensor:
        """(..., quantiles) → (...)"""
        return outputs.mean(-1)

    def errors(self, outputs: Tensor, following: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Quantile Huber loss, summed over quantiles, and the size of the error of the mean."""
        target = (reward[:, None] + discount[:, None] * following).detach()  # (B, J)
        loss = quantile_huber_losses(outputs, target, self.levels).sum(-1)
        return loss, (target.mean(-1) - outputs.mean(-1)).detach().abs()

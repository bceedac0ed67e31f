"""How far returns spread, as a moving average of the range between two percentiles (Hafner et al. 2023; Hansen et al. 2024).

Dividing by it, never by less than 1, gives one weight of the entropy for rewards of any size, and leaves small returns small.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

LEAST = 1.0
"""Returns that spread less are not blown up: what they differ by may be noise."""


class ReturnScale:
    """The tensors of a running range, to be a stage's `state`: read from it, and returned anew by its loss."""

    def __init__(self, rate: float = 0.01, low: float = 0.05, high: float = 0.95, *, name: str = "return") -> None:
        self.rate, self.low, self.high, self._names = rate, low, high, (f"{name}_low", f"{name}_high")

    def initial(self, device: torch.device | str) -> dict[str, Tensor]:
        """Return what it begins with: no range at all."""
        return {name: torch.zeros((), device=device) for name in self._names}

    def updated(self, state: Mapping[str, Tensor], returns: Tensor) -> dict[str, Tensor]:
        """Return the range moved towards that of returns (...)."""
        ends = percentiles(returns.detach().float(), self.low, self.high)
        return {name: torch.lerp(state[name], end, self.rate) for name, end in zip(self._names, ends, strict=True)}

    def divisor(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return what to divide by."""
        low, high = (state[name] for name in self._names)
        return (high - low).clamp(min=LEAST)


def percentiles(values: Tensor, *shares: float) -> list[Tensor]:
    """(...) → a number for each share: as torch.quantile, without its limit of 2^24 values."""
    ordered, last = values.reshape(-1).sort().values, values.numel() - 1
    found = []
    for share in shares:
        place = share * last
        below = int(place)
        found.append(torch.lerp(ordered[below], ordered[min(below + 1, last)], place - below))
    return found

"""CMA-ES: evolution by a normal distribution that adapts its covariance (Hansen 2016, arXiv:1604.00772).

    ask     x_k = m + σ y_k,   y_k ~ N(0, C)                                       λ candidates
    tell    y_1, y_2, ... by falling fitness;   y_w = Σ w_i y_i over the better half
            m   ← m + σ y_w
            p_σ ← (1 - c_σ) p_σ + √(c_σ (2 - c_σ) μ_eff) C^(-1/2) y_w              the path, were C = I
            σ   ← σ exp(c_σ/d_σ (|p_σ| / E|N(0, I)| - 1))                          longer than chance: larger steps
            p_c ← (1 - c_c) p_c + h_σ √(c_c (2 - c_c) μ_eff) y_w
            C   ← (1 - c_1 - c_μ Σ w_i) C + c_1 p_c p_cᵀ + c_μ Σ w_i y_i y_iᵀ        rank one, rank μ

Only the order of the fitness counts, so no scale of it has to be set. It knows nothing of what is judged: whoever asks says
how good each candidate is, more is better. All numbers are of double precision and on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

WORST_CONDITION = 1e14
"""Of C, where double precision ends: shorter axes count as that long."""


def usual_population(size: int) -> int:
    """Return how many candidates a generation has for so many weights, where nobody says."""
    return 4 + int(3 * math.log(size))


def _usual_length(size: int) -> float:
    """E|N(0, I)|, in closed form."""
    return math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))


@dataclass(frozen=True)
class Rates:
    """How fast everything moves: constants that follow from the numbers of weights and candidates (the tutorial's Table 1)."""

    weights: Tensor
    """How much each rank counts, the best first: those of the better half are positive and 1 together. (λ,)"""
    effective: float
    """How many candidates the better half is worth, μ_eff."""
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float

    @classmethod
    def of(cls, size: int, population: int, *, diagonal: bool = False, active: bool = True) -> Rates:
        """Compute them; `active`: the worse half counts too, against what it is like."""
        raw = math.log((population + 1) / 2) - torch.arange(1, population + 1, dtype=torch.float64).log()
        positive, negative = raw.clamp(min=0), raw.clamp(max=0)
        effective = float(positive.sum() ** 2 / positive.square().sum())
        c_sigma = (effective + 2) / (size + effective + 5)
        c_1 = 2 / ((size + 1.3) ** 2 + effective)
        c_mu = min(1 - c_1, 2 * (0.25 + effective + 1 / effective - 2) / ((size + 2) ** 2 + effective))
        if diagonal:  # n numbers are learnt instead of n²/2, and may be faster (Ros and Hansen 2008)
            faster = min((size + 2) / 3, 1 / (c_1 + c_mu))
            c_1, c_mu = c_1 * faster, c_mu * faster
        weights = positive / positive.sum()
        if active and c_mu > 0 and population > 2:
            less = float(negative.sum() ** 2 / negative.square().sum())
            reach = min(1 + c_1 / c_mu, 1 + 2 * less / (effective + 2), (1 - c_1 - c_mu) / (size * c_mu))
            weights += reach * negative / negative.abs().sum()
        return cls(
            weights=weights,
            effective=effective,
            c_sigma=c_sigma,
            d_sigma=1 + 2 * max(0.0, math.sqrt((effective - 1) / (size + 1)) - 1) + c_sigma,
            c_c=(4 + effective / size) / (size + 4 + 2 * effective / size),
            c_1=c_1,
            c_mu=c_mu,
        )


class CMAES:
    """A normal distribution over vectors of n weights, which moves to where the fitness is high."""

    def __init__(
        self,
        mean: Tensor,
        sigma: float,
        population: int | None = None,
        *,
        diagonal: bool = False,
        active: bool = True,
        mirrored: bool = False,
    ) -> None:
        """`diagonal`: weights have spreads and are not correlated, for thousands of them. `mirrored`: in pairs m ± σ y."""
        self.size = len(mean)
        self.population = population or usual_population(self.size)
        if mirrored:
            self.population += self.population % 2
        self.diagonal, self.mirrored = diagonal, mirrored
        self.rates = Rates.of(self.size, self.population, diagonal=diagonal, active=active)
        self.mean = mean.detach().to("cpu", torch.float64, copy=True)  # (n,)
        self.sigma = torch.tensor(sigma, dtype=torch.float64)
        self.path_sigma, self.path_c = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        whole = torch.ones_like(self.mean)
        self.covariance = whole if diagonal else torch.diag(whole)  # (n,) or (n, n)
        self.scales = torch.ones_like(self.mean)  # C = B diag(scales²) Bᵀ, as of the last decomposition
        self.basis = None if diagonal else torch.eye(self.size, dtype=torch.float64)
        self.generation = self.evaluations = self._outdated = 0
        change = self.rates.c_1 + self.rates.c_mu
        self._decompose_every = 1 if diagonal else max(1, int(1 / (10 * self.size * change)))

    def ask(self, generator: Generator) -> Tensor:
        """Draw the candidates of a generation. (λ, n)"""
        count = self.population // 2 if self.mirrored else self.population
        noise = torch.randn((count, self.size), dtype=torch.float64, generator=generator, device=generator.device).cpu()
        if self.mirrored:
            noise = torch.cat([noise, -noise])
        stretched = noise * self.scales
        return self.mean + self.sigma * (stretched if self.basis is None else stretched @ self.basis.T)

    def tell(self, candidates: Tensor, fitness: Tensor) -> None:
        """Take in how good each candidate (λ, n) is, (λ,), more is better; NaN is the worst.

        Where all are alike there is no order to learn from: the distribution stays.
        """
        self.generation += 1
        self.evaluations += len(candidates)
        fitness = fitness.to("cpu", torch.float64).nan_to_num(-math.inf, math.inf, -math.inf)
        if bool((fitness == fitness[0]).all()):
            return
        rates, size = self.rates, self.size
        steps = (candidates[self._order(fitness)] - self.mean) / self.sigma
        white = self._whiten(steps)
        positive = rates.weights.clamp(min=0)
        shift = positive @ steps
        self.mean.add_(self.sigma * shift)

        c, usual = rates.c_sigma, _usual_length(size)
        self.path_sigma.mul_(1 - c).add_(math.sqrt(c * (2 - c) * rates.effective) * (positive @ white))
        length = float(self.path_sigma.norm())
        # A path that has become this long for σ is too small says little of C: rank one waits (h_σ).
        waits = length / math.sqrt(1 - (1 - c) ** (2 * self.generation)) >= (1.4 + 2 / (size + 1)) * usual
        self.sigma.mul_(math.exp(min(1.0, c / rates.d_sigma * (length / usual - 1))))

        c = rates.c_c
        self.path_c.mul_(1 - c)
        if not waits:
            self.path_c.add_(math.sqrt(c * (2 - c) * rates.effective) * shift)
        self._adapt(steps, white, lost=c * (2 - c) if waits else 0.0)

    def _adapt(self, steps: Tensor, white: Tensor, lost: float) -> None:
        """Let C become more like the steps (λ, n) of the better, and less like those of the worse."""
        rates, path = self.rates, self.path_c
        # However long a bad step was, it takes away no more than C has in its direction.
        limit = torch.where(rates.weights < 0, self.size / white.square().sum(-1).clamp(min=1e-300), 1.0)
        weighted = (rates.c_mu * rates.weights * limit)[:, None] * steps
        kept = 1 + rates.c_1 * lost - rates.c_1 - rates.c_mu * float(rates.weights.sum())
        if self.diagonal:
            self.covariance.mul_(kept).add_(rates.c_1 * path.square()).add_((weighted * steps).sum(0))
        else:
            self.covariance.mul_(kept).add_(torch.outer(rates.c_1 * path, path)).add_(weighted.T @ steps)
        self._outdated += 1
        if self._outdated >= self._decompose_every:
            self._decompose()

    def _decompose(self) -> None:
        """Find the axes of C anew; done so seldom that it takes a small part of the time, and C has hardly changed between."""
        self._outdated = 0
        if self.basis is None:
            variances = self.covariance
        else:
            self.covariance.copy_((self.covariance + self.covariance.T) / 2)
            variances, basis = torch.linalg.eigh(self.covariance)
            self.basis.copy_(basis)
        self.scales.copy_(variances.clamp(min=float(variances.max()) / WORST_CONDITION).sqrt())

    def _whiten(self, steps: Tensor) -> Tensor:
        """C^(-1/2) times each step. (..., n)"""
        return steps / self.scales if self.basis is None else (steps @ self.basis / self.scales) @ self.basis.T

    def _order(self, fitness: Tensor) -> Tensor:
        """The best first. Of a mirrored pair the worse one stands behind all winners: both together would cancel out."""
        order = fitness.argsort(descending=True, stable=True)
        if not self.mirrored:
            return order
        first, second = fitness.chunk(2)
        loses = torch.cat([first < second, first >= second])[order]
        return torch.cat([order[~loses], order[loses]])

    @property
    def condition(self) -> float:
        """How many times the variance along the longest axis is that along the shortest. From 1e14 on, begin anew."""
        return float((self.scales.max() / self.scales.min()).square())

    def state_dict(self) -> dict[str, Any]:
        """Return the distribution, the paths and the counts."""
        basis = {} if self.basis is None else {"basis": self.basis}
        counts = {"generation": self.generation, "evaluations": self.evaluations, "outdated": self._outdated}
        return {**{name: getattr(self, name) for name in _TENSORS}, **basis, **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in _TENSORS:
            getattr(self, name).copy_(state[name])
        if self.basis is not None:
            self.basis.copy_(state["basis"])
        self.generation, self.evaluations, self._outdated = (state[key] for key in ("generation", "evaluations", "outdated"))


_TENSORS = ("mean", "sigma", "path_sigma", "path_c", "covariance", "scales")

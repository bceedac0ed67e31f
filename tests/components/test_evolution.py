"""CMA-ES: the same updates as its author's package makes, optima found, and a state that is all of it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from etude.components.evolution import CMAES, Rates, usual_population

SEEDS = range(1, 4)
Objective = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def cma() -> Any:
    """The package of CMA-ES's author; it takes seconds to import, which those who don't ask for it need not wait for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("cma")


def sphere(x: np.ndarray) -> np.ndarray:
    return (x**2).sum(-1)


def rosenbrock(x: np.ndarray) -> np.ndarray:
    return (100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(-1)


def ellipsoid(x: np.ndarray) -> np.ndarray:
    return (10 ** (6 * np.arange(x.shape[-1]) / (x.shape[-1] - 1)) * x**2).sum(-1)


def evaluations(objective: Objective, start: Tensor, seed: int, *, most: int = 5_000, **options: Any) -> int:
    """How many evaluations it takes to 1e-6."""
    evolution, generator = CMAES(start, 0.5, **options), torch.Generator().manual_seed(seed)
    while evolution.evaluations < most:
        candidates = evolution.ask(generator)
        values = objective(candidates.numpy())
        evolution.tell(candidates, -torch.from_numpy(values))
        if values.min() < 1e-6:
            break
    return evolution.evaluations


def theirs(cma: Any, objective: Objective, start: list[float], seed: int) -> int:
    strategy = cma.CMAEvolutionStrategy(start, 0.5, {"verbose": -9, "seed": seed})
    while strategy.countevals < 5_000:
        candidates = strategy.ask()
        values = objective(np.array(candidates))
        strategy.tell(candidates, values.tolist())
        if values.min() < 1e-6:
            break
    return strategy.countevals


# The package adds 1e-9 to the lengths of bad steps, and ours does not.
@pytest.mark.parametrize(("active", "tolerance"), [(False, 1e-10), (True, 1e-7)])
@pytest.mark.parametrize("size", [3, 10])
def test_updates_are_those_of_the_package_cma(cma: Any, size: int, active: bool, tolerance: float) -> None:
    options = {"verbose": -9, "seed": 3, "CMA_active": active, "updatecovwait": 0, "CMA_mirrors": 0}
    other = cma.CMAEvolutionStrategy(size * [0.5], 0.3, options)
    ours = CMAES(torch.full((size,), 0.5), 0.3, active=active)
    ours._decompose_every = 1
    # What it does otherwise than the tutorial: its path is shorter, and its first axes are not quite of one length.
    other.adapt_sigma.initialize(other)
    other.adapt_sigma.cs, other.adapt_sigma.damps = ours.rates.c_sigma, ours.rates.d_sigma
    ours.covariance.copy_(torch.tensor(other.sm.C))
    ours._decompose()
    assert ours.population == other.popsize
    for _ in range(40):
        candidates = other.ask()
        values = ellipsoid(np.array(candidates))
        other.tell(candidates, values.tolist())
        ours.tell(torch.tensor(np.array(candidates)), -torch.from_numpy(values))
        np.testing.assert_allclose(ours.mean.numpy(), other.mean, rtol=tolerance, atol=1e-14)
        np.testing.assert_allclose(float(ours.sigma), other.sigma, rtol=tolerance)
        np.testing.assert_allclose(
            ours.covariance.numpy(), other.sm.C, rtol=tolerance, atol=tolerance * np.abs(other.sm.C).max()
        )


def test_the_sphere_is_found_as_fast_as_by_the_package(cma: Any) -> None:
    ours = [evaluations(sphere, torch.ones(10), seed) for seed in SEEDS]
    assert max(ours) < 5_000
    assert np.mean(ours) == pytest.approx(np.mean([theirs(cma, sphere, 10 * [1.0], seed) for seed in SEEDS]), rel=0.2)


def test_a_curved_valley_and_an_ill_conditioned_bowl_are_found() -> None:
    assert max(evaluations(rosenbrock, torch.zeros(5), seed, active=False) for seed in SEEDS) < 5_000
    whole, positive = (evaluations(ellipsoid, torch.ones(10), 1, active=active, most=8_000) for active in (True, False))
    assert whole < positive < 8_000, "bad steps say where C is too long"


def test_mirrored_pairs_lie_on_both_sides_and_find_it_too() -> None:
    evolution = CMAES(torch.ones(7), 0.5, 9, mirrored=True)
    candidates = evolution.ask(torch.Generator().manual_seed(1))
    assert len(candidates) == evolution.population == 10
    torch.testing.assert_close(candidates[:5] + candidates[5:], torch.full((5, 7), 2.0, dtype=torch.float64))
    fitness = torch.tensor([5.0, 1, 9, 2, 3, 8, 7, 6, 0, 4])
    assert evolution._order(fitness).tolist() == [2, 5, 6, 9, 3, 7, 0, 4, 1, 8], "the winners of the pairs, then the others"
    assert max(evaluations(sphere, torch.ones(10), seed, mirrored=True) for seed in SEEDS) < 5_000


def test_the_diagonal_form_takes_no_matrix() -> None:
    evolution = CMAES(torch.ones(5_000), 0.5, diagonal=True)
    assert max(part.numel() for part in evolution.state_dict().values() if isinstance(part, Tensor)) == 5_000
    few, many = (evaluations(ellipsoid, torch.ones(10), 1, diagonal=diagonal) for diagonal in (True, False))
    assert few < many < 5_000, "where axes are the weights, it learns them sooner"


def test_only_the_order_counts() -> None:
    one, other = (CMAES(torch.zeros(4), 1.0) for _ in range(2))
    for seed in range(5):
        candidates = one.ask(torch.Generator().manual_seed(seed))
        fitness = -candidates.square().sum(-1)
        one.tell(candidates, fitness)
        other.tell(candidates, 1e6 * fitness.exp() - 3)
    assert torch.equal(one.covariance, other.covariance)
    assert torch.equal(one.sigma, other.sigma)


def test_where_all_are_alike_nothing_is_learnt() -> None:
    evolution = CMAES(torch.zeros(4), 1.0)
    evolution.tell(evolution.ask(torch.Generator().manual_seed(1)), torch.full((evolution.population,), 7.0))
    assert (evolution.generation, evolution.evaluations) == (1, evolution.population)
    assert torch.equal(evolution.mean, torch.zeros(4, dtype=torch.float64))
    assert float(evolution.sigma) == 1.0


def test_nan_is_the_worst() -> None:
    one, other = (CMAES(torch.zeros(4), 1.0, 6) for _ in range(2))
    candidates = one.ask(torch.Generator().manual_seed(1))
    one.tell(candidates, torch.tensor([torch.nan, 1, 2, 3, 4, 5]))
    other.tell(candidates, torch.tensor([-9.0, 1, 2, 3, 4, 5]))
    assert torch.equal(one.mean, other.mean)


@pytest.mark.parametrize("options", [{}, {"diagonal": True}, {"mirrored": True, "active": False}], ids=str)
def test_the_state_is_all_of_it(options: dict[str, Any]) -> None:
    size = 200  # its axes are found anew in every second generation or so
    evolution, generator = CMAES(torch.zeros(size), 0.3, **options), torch.Generator().manual_seed(1)
    target = torch.linspace(-1, 1, size, dtype=torch.float64)

    def go_on(which: CMAES, generations: int) -> None:
        for _ in range(generations):
            candidates = which.ask(generator)
            which.tell(candidates, -((candidates - target) * target.abs()).square().sum(-1))

    go_on(evolution, 7)
    if not options:
        assert evolution._outdated, "saved amid two decompositions"
    saved = {name: part.clone() if isinstance(part, Tensor) else part for name, part in evolution.state_dict().items()}
    drawn = generator.get_state()
    go_on(evolution, 7)
    other = CMAES(torch.ones(size), 1.0, **options)
    other.load_state_dict(saved)
    generator.set_state(drawn)
    go_on(other, 7)
    for name, part in evolution.state_dict().items():
        assert torch.equal(torch.as_tensor(part), torch.as_tensor(other.state_dict()[name])), name


@pytest.mark.parametrize("population", [2, 3, 4, 10, 51])
@pytest.mark.parametrize("size", [1, 2, 10, 1_000])
def test_rates_keep_the_covariance_positive(size: int, population: int) -> None:
    for diagonal in (False, True):
        rates = Rates.of(size, population, diagonal=diagonal)
        assert float(rates.weights.clamp(min=0).sum()) == pytest.approx(1)
        assert 0 < rates.c_1 + rates.c_mu <= 1 + 1e-12
        worst = -float(rates.weights.clamp(max=0).sum())
        assert 1 - rates.c_1 - rates.c_mu - size * rates.c_mu * worst >= -1e-9, "bad steps never take more than there is"


def test_the_usual_population_grows_slowly() -> None:
    assert [usual_population(size) for size in (1, 10, 1_000)] == [4, 10, 24]

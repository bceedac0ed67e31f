"""Losses of value distributions, against the papers' sums written out as loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from etude.components.value_distributions import CategoricalValue, MeanValue, QuantileValue, ValueDistribution

ROWS = 7


def batch(size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    outputs, following = (2 * torch.randn(ROWS, size, generator=generator) for _ in range(2))
    reward = 3 * torch.randn(ROWS, generator=generator)
    discount = torch.tensor([0.9, 0.9, 0.0, 0.81, 0.9, 0.0, 0.729])
    return outputs, following, reward, discount


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5


def test_the_mean_is_pulled_by_hubers_loss() -> None:
    outputs, following, reward, discount = batch(1)
    loss, wrong = MeanValue().errors(outputs, following, reward, discount)
    for row in range(ROWS):
        error = (reward[row] + discount[row] * following[row, 0] - outputs[row, 0]).item()
        assert loss[row].item() == pytest.approx(huber(error), rel=1e-5)
        assert wrong[row].item() == pytest.approx(abs(error), rel=1e-5)


def projected(value: CategoricalValue, probability: Tensor, reward: float, discount: float) -> list[float]:
    """Algorithm 1 of Bellemare et al. 2017."""
    low, high = value.support[0].item(), value.support[-1].item()
    gap = (high - low) / (value.size - 1)
    mass = [0.0] * value.size
    for j in range(value.size):
        shifted = min(max(reward + discount * value.support[j].item(), low), high)
        b = (shifted - low) / gap
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            mass[lower] += probability[j].item()
        else:
            mass[lower] += probability[j].item() * (upper - b)
            mass[upper] += probability[j].item() * (b - lower)
    return mass


@pytest.mark.parametrize(("atoms", "low", "high"), [(11, -5.0, 5.0), (2, 0.0, 1.0), (51, -1.0, 9.0)])
def test_a_histogram_is_pulled_to_the_projected_target(atoms: int, low: float, high: float) -> None:
    value = CategoricalValue(atoms, low, high)
    outputs, following, reward, discount = batch(atoms)
    loss, wrong = value.errors(outputs, following, reward, discount)
    projection = value.project(following.softmax(-1), reward, discount)
    torch.testing.assert_close(projection.sum(-1), torch.ones(ROWS))
    for row in range(ROWS):
        mass = projected(value, following.softmax(-1)[row], reward[row].item(), discount[row].item())
        assert projection[row].tolist() == pytest.approx(mass, abs=1e-5)
        log_p = outputs[row].log_softmax(-1).tolist()
        cross = -sum(m * p for m, p in zip(mass, log_p, strict=True))
        entropy = -sum(m * math.log(m) for m in mass if m > 0)
        assert loss[row].item() == pytest.approx(cross, rel=1e-4)
        assert wrong[row].item() == pytest.approx(cross - entropy, rel=1e-3, abs=1e-4)


def test_a_prediction_that_is_the_target_is_not_wrong_at_all() -> None:
    value = CategoricalValue(11, -5.0, 5.0)
    outputs = torch.randn(ROWS, 11, generator=torch.Generator().manual_seed(0))
    _, wrong = value.errors(outputs, outputs, torch.zeros(ROWS), torch.ones(ROWS))
    torch.testing.assert_close(wrong, torch.zeros(ROWS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("quantiles", [1, 5, 32])
def test_quantiles_are_pulled_by_the_quantile_huber_loss(quantiles: int) -> None:
    outputs, following, reward, discount = batch(quantiles)
    loss, wrong = QuantileValue(quantiles).errors(outputs, following, reward, discount)
    for row in range(ROWS):
        targets = [(reward[row] + discount[row] * value).item() for value in following[row]]
        total = 0.0
        for i, predicted in enumerate(outputs[row].tolist()):
            level = (2 * i + 1) / (2 * quantiles)
            total += sum(abs(level - (t - predicted < 0)) * huber(t - predicted) for t in targets) / quantiles
        assert loss[row].item() == pytest.approx(total, rel=1e-4)
        mean_error = sum(targets) / quantiles - outputs[row].mean().item()
        assert wrong[row].item() == pytest.approx(abs(mean_error), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "value", [MeanValue(), CategoricalValue(21, -3.0, 3.0), QuantileValue(9)], ids=lambda v: type(v).__name__
)
def test_gradients_reach_the_prediction_alone(value: ValueDistribution) -> None:
    outputs, following, reward, discount = batch(value.size)
    outputs.requires_grad_()
    following.requires_grad_()
    loss, wrong = value.errors(outputs, following, reward, discount)
    loss.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.abs().sum() > 0
    assert following.grad is None
    assert not wrong.requires_grad


def test_quantile_regression_finds_the_quantiles_of_what_it_sees() -> None:
    value, generator = QuantileValue(4), torch.Generator().manual_seed(1)
    estimate = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([estimate], lr=0.2)
    for _ in range(500):
        seen = 20 * torch.rand(256, 1, generator=generator)  # Huber's parabola near 0 is small against this spread
        loss, _ = value.errors(estimate.expand(256, 4), seen.expand(256, 4), torch.zeros(256), torch.ones(256))
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    torch.testing.assert_close(estimate.detach(), torch.tensor([2.5, 7.5, 12.5, 17.5]), atol=1.0, rtol=0)


def test_expected_values_are_means() -> None:
    outputs = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(2))
    categorical = CategoricalValue(5, 0.0, 4.0)
    by_hand = [[sum(i * p for i, p in enumerate(a.softmax(-1).tolist())) for a in row] for row in outputs]
    torch.testing.assert_close(categorical.values(outputs), torch.tensor(by_hand))
    torch.testing.assert_close(QuantileValue(5).values(outputs), outputs.mean(-1))
    assert MeanValue().values(outputs[..., :1]).shape == (3, 2)

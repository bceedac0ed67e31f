"""Stein's direction: the kernel and its gradient by autograd, and particles that come to follow a density."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from etude.components.stein import BANDWIDTH_FLOOR, median_kernel, squash_correction, stein_direction


def particles(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(("fixed", "moved"), [(8, 8), (5, 3), (2, 1)])
def test_the_kernel_and_its_gradient_are_those_of_autograd(fixed: int, moved: int) -> None:
    x, y = particles(4, fixed, 3).requires_grad_(), particles(4, moved, 3)
    kernel, gradient = median_kernel(x, y)
    for b in range(4):
        squared = [[(x[b, i] - y[b, j]).square().sum() for j in range(moved)] for i in range(fixed)]
        from_above = sorted((s.item() for row in squared for s in row), reverse=True)
        bandwidth = max(from_above[fixed * moved // 2] / math.log(fixed), 1e-3)
        for i in range(fixed):
            for j in range(moved):
                expected = torch.exp(-squared[i][j] / bandwidth)
                torch.testing.assert_close(kernel[b, i, j], expected, rtol=0, atol=1e-5)
                (by_autograd,) = torch.autograd.grad(expected, x, retain_graph=True)
                torch.testing.assert_close(gradient[b, i, j], by_autograd[b, i], rtol=0, atol=1e-5)


def test_particles_in_one_place_have_a_kernel() -> None:
    kernel, gradient = median_kernel(torch.zeros(1, 4, 2), torch.full((1, 4, 2), 0.01))
    torch.testing.assert_close(kernel, torch.full((1, 4, 4), math.exp(-2e-4 / BANDWIDTH_FLOOR)))
    assert gradient.isfinite().all()


def test_the_direction_is_the_mean_over_the_fixed_particles() -> None:
    x, y, score = particles(2, 5, 3), particles(2, 4, 3).flip(0), particles(2, 5, 3).square()
    kernel, gradient = median_kernel(x, y)
    expected = sum(kernel[:, i, :, None] * score[:, i, None] + gradient[:, i] for i in range(5)) / 5
    torch.testing.assert_close(stein_direction(x, y, score), expected)


def test_the_squash_correction_is_the_slope_of_tanh() -> None:
    before = particles(10, 2).requires_grad_()
    (slope,) = torch.autograd.grad(before.tanh().sum(), before)
    torch.testing.assert_close(squash_correction(before.tanh()), slope.log().sum(-1), rtol=1e-4, atol=1e-4)
    assert squash_correction(torch.ones(1, 2)).isfinite().all()


def test_particles_come_to_follow_a_normal_density() -> None:
    place = particles(1, 64, 1) * 0.1 + 2
    for _ in range(300):
        place += 0.2 * stein_direction(place, place, -(place - 1.0) / 0.5**2)
    assert place.mean().item() == pytest.approx(1.0, abs=0.05)
    assert place.std().item() == pytest.approx(0.5, abs=0.1)

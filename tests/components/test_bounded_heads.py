"""Heads of bounded actions: the squashed Gaussian is a density, the deterministic one a point; neither leaves the bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.distributions import DeterministicHead, SquashedGaussian, SquashedGaussianHead
from etude.errors import UserError

SPACE = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.5, 0.5), (-0.3, 0.1)])
def test_a_squashed_density_integrates_to_one(mean: float, std: float) -> None:
    edges = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    middles = ((edges[1:] + edges[:-1]) / 2).unsqueeze(-1)
    distribution = SquashedGaussian(torch.full_like(middles, mean), torch.full_like(middles, std).log())
    integral = (distribution.log_prob(middles).exp() * 1e-5).sum().item()
    assert integral == pytest.approx(1.0, abs=1e-3)


def test_a_squashed_density_is_a_number_up_to_the_edge() -> None:
    action = torch.tensor([[1.0], [-1.0], [1 - 1e-7], [0.999]])
    distribution = SquashedGaussian(torch.zeros(4, 1), torch.zeros(4, 1))
    assert distribution.log_prob(action).isfinite().all()
    drawn, log_prob = SquashedGaussian(torch.full((3, 1), 30.0), torch.zeros(3, 1)).draw(torch.zeros(3, 1))
    assert drawn.max() <= 1
    assert log_prob.isfinite().all()


def test_drawing_and_looking_up_agree() -> None:
    generator = torch.Generator().manual_seed(1)
    mean, log_std = (torch.randn(50, 3, generator=generator, dtype=torch.float64) * 0.5 for _ in range(2))
    distribution = SquashedGaussian(mean, log_std)
    action, log_prob = distribution.draw(torch.randn(50, 3, generator=generator, dtype=torch.float64))
    torch.testing.assert_close(distribution.log_prob(action), log_prob, rtol=1e-6, atol=1e-6)
    assert torch.equal(distribution.mode(), mean.tanh())


def test_a_point_is_where_it_is() -> None:
    head = DeterministicHead(SPACE)
    outputs = torch.tensor([[0.3, -0.2], [9.0, -9.0]])
    point = head(outputs)
    assert head.size == 2
    assert torch.equal(point.mode(), outputs.tanh())
    assert torch.equal(point.sample(torch.Generator()), outputs.tanh())
    assert point.log_prob(point.mode()).tolist() == [0, 0]
    assert point.log_prob(point.mode() + 0.1).tolist() == [-torch.inf, -torch.inf]
    assert point.entropy().tolist() == [0, 0]


@pytest.mark.parametrize("head", [DeterministicHead(SPACE), SquashedGaussianHead(SPACE)])
def test_samples_are_stretched_to_the_bounds(head: DeterministicHead | SquashedGaussianHead) -> None:
    sample = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [1.5, -1.5]])
    assert head.to_environment(sample).tolist() == [[-2, 0], [0, 5], [2, 10], [2, 0]]


def test_actions_without_bounds_are_refused() -> None:
    with pytest.raises(UserError, match="actions without bounds"):
        DeterministicHead(spaces.Box(-np.inf, np.inf, (1,)))

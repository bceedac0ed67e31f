"""Planning finds what is best, for many tasks at once as for each by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from etude.components.planners import Plan, Planner, shifted

MPPI = Planner(elites=16, temperature=20.0, min_std=0.01, max_std=1.0)
CEM = Planner(elites=16, temperature=0.0, min_std=0.01, max_std=1.0)
HORIZON = 5


class Linear:
    """A point with a velocity, pushed: the cost is quadratic, so the best plan is known (Riccati)."""

    A = torch.tensor([[1.0, 0.2], [0.0, 1.0]])
    B = torch.tensor([[0.0], [0.2]])
    Q = torch.diag(torch.tensor([1.0, 0.1]))
    R = torch.tensor([[0.1]])

    def value(self, state: Tensor, actions: Tensor) -> Tensor:
        """(N, 2), (N, S, H, 1) → (N, S): minus the cost"""
        x = state[:, None].expand(-1, actions.shape[1], -1)
        cost = torch.zeros(actions.shape[:2])
        for t in range(actions.shape[2]):
            u = actions[:, :, t]
            x = x @ self.A.T + u @ self.B.T
            cost = cost + ((x @ self.Q) * x).sum(-1) + ((u @ self.R) * u).sum(-1)
        return -cost

    def best(self, state: Tensor) -> float:
        """The least cost of HORIZON steps from a state (2,)."""
        A, B, Q, R = (matrix.double().numpy() for matrix in (self.A, self.B, self.Q, self.R))
        P = np.zeros((2, 2))
        for _ in range(HORIZON):
            M = Q + P
            gain = np.linalg.solve(R + B.T @ M @ B, B.T @ M @ A)
            P = A.T @ M @ (A - B @ gain)
        x = state.double().numpy()
        return float(x @ P @ x)


def noise(iterations: int, tasks: int, samples: int, size: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(iterations, tasks, samples, HORIZON, size, generator=torch.Generator().manual_seed(seed))


STATES = torch.tensor([[0.2, 0.0], [-0.3, 0.3], [0.2, -0.3], [0.0, 0.3]])


@pytest.mark.parametrize("planner", [MPPI, CEM], ids=["mppi", "cem"])
def test_a_plan_costs_little_more_than_the_best_there_is(planner: Planner) -> None:
    task = Linear()
    plan = planner(lambda actions: task.value(STATES, actions), torch.zeros(4, HORIZON, 1), noise(12, 4, 256))
    assert plan.mean.abs().max() < 1, "the best plan lies inside the bounds, where Riccati's is right"
    for state, mean in zip(STATES, plan.mean, strict=True):
        cost = -task.value(state[None], mean[None, None])[0, 0].item()
        assert task.best(state) - 1e-6 <= cost <= 1.05 * task.best(state)


@pytest.mark.parametrize("planner", [MPPI, CEM], ids=["mppi", "cem"])
def test_many_tasks_at_once_are_planned_as_each_by_itself(planner: Planner) -> None:
    task, drawn = Linear(), noise(4, 4, 64)
    proposals = torch.rand(4, 3, HORIZON, 1) * 2 - 1
    together = planner(lambda actions: task.value(STATES, actions), torch.zeros(4, HORIZON, 1), drawn, proposals)
    for n in range(4):
        one = slice(n, n + 1)
        alone = planner(
            lambda actions, one=one: task.value(STATES[one], actions), torch.zeros(1, HORIZON, 1), drawn[:, one], proposals[one]
        )
        for batched, single in zip(together, alone, strict=True):
            torch.testing.assert_close(batched[one], single, rtol=1e-5, atol=1e-6)


def by_the_book(planner: Planner, task: Linear, state: Tensor, drawn: Tensor, proposals: Tensor) -> tuple[Tensor, Tensor]:
    """MPPI for one task, one sequence and one step at a time."""
    mean, std = [0.0] * HORIZON, [planner.max_std] * HORIZON
    for each in drawn:  # (S, H, 1)
        sequences = [[float(u) for u in row[:, 0]] for row in proposals]
        sequences += [[min(1.0, max(-1.0, mean[t] + std[t] * float(row[t, 0]))) for t in range(HORIZON)] for row in each]
        values = [float(task.value(state[None], torch.tensor(s).view(1, 1, -1, 1))) for s in sequences]
        order = sorted(range(len(values)), key=lambda i: -values[i])[: planner.elites]
        scores = [math.exp(planner.temperature * (values[i] - values[order[0]])) for i in order]
        for t in range(HORIZON):
            kept = [sequences[i][t] for i in order]
            middle = sum(s * u for s, u in zip(scores, kept, strict=True)) / sum(scores)
            spread = math.sqrt(sum(s * (u - middle) ** 2 for s, u in zip(scores, kept, strict=True)) / sum(scores))
            std[t] = min(planner.max_std, max(planner.min_std, spread))
            mean[t] = planner.momentum * mean[t] + (1 - planner.momentum) * middle
    return torch.tensor(mean), torch.tensor(std)


@pytest.mark.parametrize("momentum", [0.0, 0.3])
def test_mppi_agrees_with_a_slow_loop(momentum: float) -> None:
    planner, task, drawn = Planner(8, 1.5, 0.05, 2.0, momentum), Linear(), noise(3, 1, 20, seed=3)
    proposals = torch.rand(1, 4, HORIZON, 1, generator=torch.Generator().manual_seed(5)) * 2 - 1
    plan = planner(lambda actions: task.value(STATES[:1], actions), torch.zeros(1, HORIZON, 1), drawn, proposals)
    mean, std = by_the_book(planner, task, STATES[0], drawn[:, 0], proposals[0])
    torch.testing.assert_close(plan.mean[0, :, 0], mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plan.std[0, :, 0], std, rtol=1e-4, atol=1e-5)


def test_deviations_and_actions_stay_within_their_bounds() -> None:
    planner = Planner(elites=4, temperature=100.0, min_std=0.3, max_std=0.7)
    plan = planner(lambda actions: actions.sum((2, 3)) * 50, torch.full((2, HORIZON, 1), 0.9), noise(6, 2, 32))
    assert plan.std.min() >= 0.3
    assert plan.std.max() <= 0.7
    assert plan.elites.abs().max() <= 1


def test_a_proposal_that_is_best_is_followed() -> None:
    wanted = torch.linspace(-1, 1, HORIZON).view(1, 1, HORIZON, 1)
    planner = Planner(elites=8, temperature=100.0, min_std=0.01)
    plan = planner(
        lambda actions: -(actions - wanted).square().sum((2, 3)), torch.zeros(1, HORIZON, 1), noise(2, 1, 32), wanted
    )
    torch.testing.assert_close(plan.mean, wanted[:, 0], rtol=0, atol=0.02)


def test_actions_are_drawn_from_elites_by_their_weights() -> None:
    elites = torch.arange(3.0).view(1, 3, 1, 1).expand(20_000, 3, 1, 1)
    weights = torch.tensor([[0.5, 0.2, 0.3]]).expand(20_000, 3)
    nothing = torch.zeros(20_000)
    drawn = Plan(elites[:, 0], elites[:, 0], elites, weights, nothing).draw(torch.linspace(0, 1 - 1e-6, 20_000))
    shares = [(drawn == value).float().mean().item() for value in (0.0, 1.0, 2.0)]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=1e-3)
    assert Plan(elites[:1, 0], elites[:1, 0], elites[:1], weights[:1] * 0.999, nothing).draw(torch.ones(1)).item() == 2.0


def test_a_plan_goes_on_one_step_later_and_begins_anew_with_an_episode() -> None:
    mean = torch.arange(1.0, 7.0).view(2, 3, 1)
    later = shifted(mean, torch.tensor([False, True]))
    assert later[..., 0].tolist() == [[2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]

"""The baseline: uniform in every action space, within what is allowed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from etude.errors import UserError
from etude.training import assembly
from etude.workflows.random_policy import RandomPolicy
from tests.workflows.tiny_runs import random_config

N = 60_000
OBSERVATION = spaces.Box(-1, 1, (2,), np.float32)


def draws(space: Any, observation: Any = None, observation_space: Any = OBSERVATION, seed: int = 0) -> Tensor:
    workflow = assembly.build_workflow(random_config("CartPole-v1"), observation_space, space)
    given = torch.zeros(N, 2) if observation is None else observation
    result = workflow.act(
        given, None, torch.zeros(N, dtype=torch.bool), mode="explore", generator=torch.Generator().manual_seed(seed)
    )
    assert result.action.shape == (N, *(space.shape or ()))
    return result.action


def assert_uniform(values: Tensor, choices: list[int]) -> None:
    counts = torch.tensor([(values == choice).sum() for choice in choices]).double()
    assert counts.sum() == len(values), "something else was drawn"
    expected = len(values) / len(choices)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # The 99.9th percentile of the chi-square distribution, by the Wilson-Hilferty approximation.
    freedom = len(choices) - 1
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3


def test_discrete() -> None:
    assert_uniform(draws(spaces.Discrete(7)), list(range(7)))
    assert_uniform(draws(spaces.Discrete(3, start=10)), [0, 1, 2])  # the environment adds the start


def test_multi_discrete() -> None:
    action = draws(spaces.MultiDiscrete(np.array([[2, 3], [5, 4]])))
    for i, size in enumerate([2, 3, 5, 4]):
        assert_uniform(action.flatten(1)[:, i], list(range(size)))
    assert_uniform(action[:, 0, 1] * 5 + action[:, 1, 0], list(range(15)))  # and independently


def test_multi_binary() -> None:
    action = draws(spaces.MultiBinary(3))
    assert_uniform((action * torch.tensor([1, 2, 4])).sum(-1), list(range(8)))


def test_bounded_box() -> None:
    space = spaces.Box(np.array([-2.0, 10.0], np.float32), np.array([1.0, 10.5], np.float32))
    action = draws(space)
    low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
    assert ((action >= low) & (action <= high)).all()
    tenths = ((action - low) / (high - low) * 10).floor().clamp(max=9)
    for i in range(2):
        assert_uniform(tenths[:, i], list(range(10)))


def test_a_box_of_whole_numbers_reaches_both_ends_evenly() -> None:
    assert_uniform(draws(spaces.Box(-2, 3, (1,), np.int64))[:, 0], list(range(-2, 4)))


def test_boxes_without_bounds_are_drawn_as_gymnasium_draws_them() -> None:
    low = np.array([-np.inf, 1.0, -np.inf], np.float32)
    high = np.array([np.inf, np.inf, -1.0], np.float32)
    space = spaces.Box(low, high)
    ours = draws(space)
    space.seed(0)
    theirs = torch.from_numpy(np.stack([space.sample() for _ in range(5_000)]))
    assert torch.isfinite(ours).all()
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), rtol=0, atol=0.06)
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0, atol=0.06)
    assert (ours[:, 1] >= 1.0).all()
    assert (ours[:, 2] <= -1.0).all()


def test_a_seed_says_it_all() -> None:
    space = spaces.Box(-1, 1, (2,))
    assert torch.equal(draws(space, seed=4), draws(space, seed=4))
    assert not torch.equal(draws(space, seed=4), draws(space, seed=5))


def test_only_allowed_actions_are_drawn_and_evenly() -> None:
    space = spaces.Dict({"x": OBSERVATION, "action_mask": spaces.MultiBinary(5)})
    mask = torch.tensor([1, 0, 1, 1, 0], dtype=torch.int8).expand(N, 5)
    observation = {"x": torch.zeros(N, 2), "action_mask": mask}
    assert_uniform(draws(spaces.Discrete(5), observation, space), [0, 2, 3])
    several = draws(spaces.MultiDiscrete([2, 3]), observation, space)
    assert (several[:, 0] == 0).all()
    assert_uniform(several[:, 1], [0, 1])


def test_spaces_that_nothing_acts_in_are_refused() -> None:
    with pytest.raises(UserError, match="no policy acts in Text spaces"):
        draws(spaces.Text(3))


@pytest.mark.parametrize(
    ("space", "volume"),
    [
        (spaces.Box(-2, 2, (3,), np.float32), 4.0**3),
        (spaces.Box(np.array([[0.0], [1.0]], np.float32), np.array([[0.5], [4.0]], np.float32)), 1.5),
        (spaces.Box(0, 9, (2,), np.int32), 100.0),
        (spaces.Discrete(7), 7.0),
        (spaces.MultiDiscrete([2, 5]), 10.0),
        (spaces.MultiBinary(3), 8.0),
    ],
)
def test_the_density_is_one_over_the_volume(space: spaces.Space[Any], volume: float) -> None:
    """NET-11: every action within the bounds is as likely as any other, and none outside of them is."""
    workflow = RandomPolicy()
    context = SimpleNamespace(action_space=space, device=torch.device("cpu"))
    workflow.context = context  # type: ignore[assignment] # all that acting reads
    observation, first = torch.zeros(500, 2), torch.zeros(500)
    action = workflow.act(observation, None, first, mode="sample", generator=torch.Generator().manual_seed(1)).action
    torch.testing.assert_close(workflow.log_prob(observation, action), torch.full((500,), -math.log(volume)))
    policy = workflow.distribution(observation, 500)
    torch.testing.assert_close(policy.entropy(), torch.full((500,), math.log(volume)))
    assert workflow.log_prob(observation, policy.sample(torch.Generator().manual_seed(2))).isfinite().all()
    if isinstance(space, spaces.Box):
        assert (workflow.log_prob(observation, action + 100) == -torch.inf).all()


def test_the_density_among_masked_actions_is_one_over_those_allowed() -> None:
    workflow = RandomPolicy()
    workflow.context = SimpleNamespace(action_space=spaces.Discrete(4), device=torch.device("cpu"))  # type: ignore[assignment]
    observation = {"action_mask": torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]])}
    torch.testing.assert_close(workflow.log_prob(observation, torch.tensor([1, 3])), -torch.tensor([2.0, 3.0]).log())


def test_no_density_where_actions_have_no_bounds() -> None:
    workflow = RandomPolicy()
    endless = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    workflow.context = SimpleNamespace(action_space=endless, device=torch.device("cpu"))  # type: ignore[assignment]
    with pytest.raises(UserError, match="actions without bounds"):
        workflow.log_prob(torch.zeros(1, 2), torch.zeros(1, 1))

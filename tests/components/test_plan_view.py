"""Charts of plans show the numbers that they are given, where they are."""

from __future__ import annotations

import numpy as np
import torch

from etude.components import plan_view
from etude.components.open_loop_view import PREDICTS, SEES, TRUTH
from etude.components.plan_view import BAND, ELITE, GAP, HEIGHT, STEP_WIDTH
from etude.components.planners import Plan


def rows_of(picture: torch.Tensor, colour: tuple[int, ...], column: int) -> np.ndarray:
    """The pixels of a colour in a column, from the top."""
    return np.flatnonzero((picture[:, column].numpy() == colour).all(-1))


def test_a_panel_shows_mean_deviation_elites_and_policy_at_each_step() -> None:
    mean = torch.tensor([[0.5, -0.5]])[..., None]  # one state, two steps, one action
    plan = Plan(mean, torch.full_like(mean, 0.2), torch.zeros(1, 3, 2, 1), torch.ones(1, 3) / 3, torch.zeros(1))
    picture = plan_view.plans(plan, torch.full_like(mean, -0.9))
    assert picture.shape == (HEIGHT, 2 * STEP_WIDTH, 3)
    middles = (STEP_WIDTH // 2, STEP_WIDTH + STEP_WIDTH // 2)
    for column, share in zip(middles, (0.28, 0.72), strict=True):  # from the top
        assert abs(rows_of(picture, SEES, column).mean() - share * HEIGHT) < 3
        assert abs(rows_of(picture, PREDICTS, column).mean() - 0.89 * HEIGHT) < 4
        assert abs(rows_of(picture, ELITE, column).mean() - 0.5 * HEIGHT) < 3
        assert len(rows_of(picture, BAND, column)) > 0.1 * HEIGHT


def test_states_are_rows_and_actions_columns() -> None:
    mean = torch.zeros(4, 3, 2)
    plan = Plan(mean, mean + 0.1, torch.zeros(4, 5, 3, 2), torch.ones(4, 5) / 5, torch.zeros(4))
    picture = plan_view.plans(plan, mean)
    assert picture.shape == (4 * HEIGHT + 3 * GAP, 2 * 3 * STEP_WIDTH + GAP, 3)
    assert picture.dtype == torch.uint8


def test_rewards_are_drawn_up_to_the_first_end() -> None:
    received = torch.tensor([[0.0, 1.0], [0.0, 50.0]])
    picture = plan_view.rewards(received, received - 0.5, torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    second = 2 * STEP_WIDTH + GAP
    assert len(rows_of(picture, TRUTH, STEP_WIDTH + STEP_WIDTH // 2)) > 0
    assert len(rows_of(picture, PREDICTS, second + STEP_WIDTH // 2)) > 0
    assert len(rows_of(picture, TRUTH, second + STEP_WIDTH + STEP_WIDTH // 2)) == 0, "behind an end there is nothing"
    low, high = (rows_of(picture, TRUTH, column).mean() for column in (STEP_WIDTH // 2, STEP_WIDTH + STEP_WIDTH // 2))
    assert low > high, "a higher reward is higher up, whatever lies behind ends"

"""What is planned, as pictures: action sequences in a few states, and the rewards that a model expects along what was done.

plans     a row for each state, a panel for each action, time to the right, −1 to 1 upwards: elites thin and grey, the
          mean in green on a band of its deviation, and in red what the policy network would do
rewards   a panel for each window: what was received in grey, what was predicted in red
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from etude.components.open_loop_view import PREDICTS, SEES, TRUTH
from etude.components.planners import Plan

Colour = tuple[int, int, int]
BAND, ELITE, MIDDLE, EDGE = (214, 236, 217), (198, 198, 198), (235, 235, 235), (225, 225, 225)
HEIGHT, STEP_WIDTH, GAP = 96, 40, 6
"""Of a panel in pixels; its width is that of its steps."""
LARGEST = 6
"""Panels in a row of plans: the first actions."""
WINDOWS_IN_A_ROW = 4
ACTIONS = (-1.15, 1.15)
"""What a panel shows of them: those at a bound are not on its edge."""
ELITES_SHOWN = 12


def plans(plan: Plan, policy: Tensor) -> Tensor:
    """Plans of N states, and what the policy network would do (N, H, A) → (height, width, 3) of bytes"""
    mean, std, elites, own = (
        values.detach().float().cpu().numpy() for values in (plan.mean, plan.std, plan.elites[:, :ELITES_SHOWN], policy)
    )
    actions = range(min(mean.shape[-1], LARGEST))
    rows = [
        _beside([_panel(mean[n, :, a], std[n, :, a], elites[n, :, :, a], own[n, :, a]) for a in actions])
        for n in range(len(mean))
    ]
    return torch.from_numpy(_below(rows))


def rewards(received: Tensor, predicted: Tensor, inside: Tensor) -> Tensor:
    """(B, H) each; only steps `inside` their window's first episode are drawn → (height, width, 3) of bytes"""
    real, made, shown = (values.detach().float().cpu().numpy() for values in (received, predicted, inside))
    seen = real[shown > 0]
    limits = (float(seen.min()), float(seen.max()))
    margin = 0.25 * max(limits[1] - limits[0], 1e-3)
    panels = []
    for truth, guess, steps in zip(real, made, shown.sum(1).astype(int), strict=True):
        panel = _empty(real.shape[1])
        for values, colour in ((truth, TRUTH), (guess, PREDICTS)):
            _line(panel, values[:steps], (limits[0] - margin, limits[1] + margin), colour)
        panels.append(panel)
    rows = [panels[k : k + WINDOWS_IN_A_ROW] for k in range(0, len(panels), WINDOWS_IN_A_ROW)]
    rows[-1] += [_empty(real.shape[1])] * (len(rows[0]) - len(rows[-1]))
    return torch.from_numpy(_below([_beside(row) for row in rows]))


def _panel(mean: np.ndarray, std: np.ndarray, elites: np.ndarray, policy: np.ndarray) -> np.ndarray:
    panel = _empty(len(mean))
    _fill(panel, mean - std, mean + std)
    panel[HEIGHT // 2] = np.minimum(panel[HEIGHT // 2], MIDDLE)
    for elite in elites:
        _line(panel, elite, ACTIONS, ELITE, thickness=1)
    _line(panel, policy, ACTIONS, PREDICTS)
    _line(panel, mean, ACTIONS, SEES)
    return panel


def _empty(steps: int) -> np.ndarray:
    """A white panel for values at so many steps, each as wide as the time that it holds."""
    panel = np.full((HEIGHT, steps * STEP_WIDTH, 3), 255, np.uint8)
    panel[0] = panel[-1] = EDGE
    panel[:, 0] = panel[:, -1] = EDGE
    return panel


def _heights(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """The pixel of a value that is held for each step, for every column."""
    held = np.repeat(np.nan_to_num(values), STEP_WIDTH)
    share = (np.clip(held, *limits) - limits[0]) / (limits[1] - limits[0])
    return (1 + (HEIGHT - 4) * (1 - share)).round().astype(int)


def _line(panel: np.ndarray, values: np.ndarray, limits: tuple[float, float], colour: Colour, thickness: int = 2) -> None:
    y = _heights(values, limits)
    for x in range(len(y)):
        low, high = sorted((y[x], y[max(x - 1, 0)]))
        panel[low : high + thickness, x] = colour


def _fill(panel: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    for x, (top, bottom) in enumerate(zip(_heights(high, ACTIONS), _heights(low, ACTIONS), strict=True)):
        panel[top : bottom + 1, x] = BAND


def _beside(panels: list[np.ndarray]) -> np.ndarray:
    gap = np.full((HEIGHT, GAP, 3), 255, np.uint8)
    return np.concatenate([part for panel in panels for part in (panel, gap)][:-1], axis=1)


def _below(rows: list[np.ndarray]) -> np.ndarray:
    gap = np.full((GAP, rows[0].shape[1], 3), 255, np.uint8)
    return np.concatenate([part for row in rows for part in (row, gap)][:-1])

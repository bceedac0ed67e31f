"""Stages of an update and what comes after it may run at paces of their own, the same eager and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from etude.compute.accelerate import Mode
from etude.config.validate import Part
from etude.learning.optimizers import build_optimizer
from etude.learning.update_step import Stage, UpdateStep


class Reach(nn.Module):
    """Moves one number towards the rows' mean."""

    def __init__(self) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.zeros(()))

    def forward(self, rows: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return (self.number - rows["x"].mean()).square(), {}


def build(every: int, after_every: int, mode: Mode = "eager") -> tuple[UpdateStep, list[Reach], Tensor]:
    losses, ends = [Reach(), Reach()], torch.zeros(())
    rate = torch.tensor(0.1)
    first, second = (build_optimizer(Part("adam", {}), {"all": (loss.parameters(), rate)}) for loss in losses)
    stages = [Stage(losses[0], first, name="first"), Stage(losses[1], second, name="second", every=every)]

    def count() -> None:
        ends.add_(1)

    return UpdateStep(stages, after=count, after_every=after_every, changed_after=[ends], mode=mode), losses, ends


@pytest.mark.parametrize(
    ("after_every", "expected"), [(1, [1, 2, 3, 4, 5, 6]), (2, [0, 1, 1, 2, 2, 3]), (3, [0, 0, 1, 1, 1, 2])]
)
def test_after_runs_at_its_own_pace(after_every: int, expected: list[int]) -> None:
    step, _, ends = build(2, after_every)
    counted = []
    for update in range(6):
        reports = step({"x": torch.ones(1, 4)}, first=update)
        assert ("second" in reports) == (update % 2 == 1)
        counted.append(int(ends))
    assert counted == expected


def test_updates_taken_together_are_those_taken_one_by_one() -> None:
    batch = {"x": torch.arange(28.0).view(7, 4)}
    whole, numbers, ends = build(2, 3)
    whole(batch, first=5)
    parted, others, other_ends = build(2, 3)
    for k in range(7):
        parted({"x": batch["x"][k : k + 1]}, first=5 + k)
    assert int(ends) == int(other_ends) == 3
    for one, other in zip(numbers, others, strict=True):
        torch.testing.assert_close(one.number, other.number, rtol=0, atol=0)


def test_a_compiled_update_keeps_the_paces() -> None:
    batch = {"x": torch.arange(16.0).view(4, 4)}  # the second stage takes two steps of these, and `after` runs once
    results = []
    for mode in ("eager", "compiled"):
        step, losses, ends = build(2, 3, mode)
        step(batch, first=4)
        results.append(torch.stack([*(loss.number.detach() for loss in losses), ends]))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)

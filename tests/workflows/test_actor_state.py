"""Whatever tree of tensors an actor carries is part of a checkpoint, and a resume goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

from etude.environments.vector import Observation
from etude.workflows.base import ActResult, Mode, State
from tests.doubles import TwoMethods
from tests.runs_compared import assert_same_run, resume, stopped_after, train


class Plan(NamedTuple):
    steps: Tensor
    ahead: list[Any]


class Planner(TwoMethods):
    """Carries a plan in every kind of container, which what it does depends on."""

    def initial_state(self, n: int) -> State:
        return Plan(torch.zeros(n, dtype=torch.int64), [torch.ones(n, 2), {"turn": (torch.zeros(n), None)}])

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        assert type(state) is Plan
        steps = state.steps.masked_fill(is_first, 0) + 1
        turn = torch.rand(len(is_first), generator=generator) + state.ahead[1]["turn"][0] / 2
        wave = state.ahead[0].roll(1, 1) * 0.9 + turn[:, None]
        return ActResult(((wave.sum(-1) + steps) % 2 > 1).long(), Plan(steps, [wave, {"turn": (turn, None)}]))


@pytest.mark.parametrize("stop", [2, 5])
def test_a_named_tuple_is_stored_and_a_resume_goes_on_with_it(stop: int, tmp_path: Path) -> None:
    words = (*("environment.num_envs=3", "algorithm.rollout_steps=16", "training.total_steps=480", "evaluation.episodes=2"),)
    whole = train(f"CartPole-v1:{__name__}.Planner", tmp_path / "whole", *words)
    with stopped_after(stop):
        run = train(f"CartPole-v1:{__name__}.Planner", tmp_path / "cut", *words)
    assert resume(run).status == "finished"
    assert_same_run(run, whole)

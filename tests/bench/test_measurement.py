from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import tasks
from measurement import Point, steady
from sides import stepping
from sides.stepping import drawn_actions, step_through


def test_warm_up_is_excluded_and_its_surplus_reported_apart() -> None:
    # 100 steps took 11 s, the next 200 took 2 s: at that speed the first 100 would have taken 1 s.
    points = [Point(0, 0, 5.0), Point(100, 10, 16.0), Point(200, 20, 17.0), Point(300, 30, 18.0)]
    found = steady(points, warmup=100)
    assert found["rate"] == pytest.approx(100)
    assert found["warmup_extra_s"] == pytest.approx(10)
    assert found["gradient_steps_per_unit"] == pytest.approx(0.1)


def test_a_measurement_that_is_all_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        steady([Point(0, 0, 0.0), Point(100, 0, 1.0)], warmup=100)


class _EndsEveryThirdCall:
    """Two copies that end together at every third call and spend the next one on the reset."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self, action: object) -> tuple[object, ...]:
        self.calls += 1
        ended = np.full(2, self.calls % 3 == 0)
        return None, None, ended, np.zeros(2, bool), {}


def test_a_call_that_only_resets_is_no_transition() -> None:
    task = tasks.SteppingTask("any", num_envs=2, warmup_steps=4, block_steps=6, min_seconds=0.0)
    points = step_through(_EndsEveryThirdCall().step, [None], task, resets_take_a_step=True)
    # Calls 4, 7 and 10 are resets: of 4 calls one, of 10 calls three.
    assert [point.units for point in points] == [0, 2 * (4 - 1), 2 * (10 - 3)]
    same_step = step_through(_EndsEveryThirdCall().step, [None], task)
    assert [point.units for point in same_step] == [0, 8, 20]


def test_stepping_goes_on_until_enough_time_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[None] = []
    monkeypatch.setattr(stepping, "time", SimpleNamespace(perf_counter=lambda: 0.5 * len(steps)))  # each takes half a second
    task = tasks.SteppingTask("any", num_envs=1, warmup_steps=1, block_steps=1, min_seconds=2.0)
    points = step_through(steps.append, [None], task)
    assert [point.at for point in points] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_every_side_is_given_the_same_actions() -> None:
    space = gymnasium.spaces.Box(-2.0, 1.0, (3,), "float32")
    task = tasks.SteppingTask("any", num_envs=4, distinct_actions=5)
    single, double = drawn_actions(task, space, "float32"), drawn_actions(task, space, "float64")
    assert len(single) == 5
    assert single[0].shape == (4, 3)
    assert np.allclose(single, double)
    assert all(space.low.min() <= action.min() and action.max() <= space.high.max() for action in double)

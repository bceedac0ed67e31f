from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.telemetry.history import CAPACITY, History, MetricHistory


def history_of(values):
    history = MetricHistory()
    for value in values:
        history.add(value)
    return history


def test_last_previous_and_best():
    history = history_of([1.0, 5.0, math.nan, 2.0, 3.0])
    assert (history.last, history.previous, history.best) == (3.0, 2.0, 5.0)


def test_a_single_value_has_no_previous_one():
    assert history_of([1.0]).previous is None


@given(st.integers(1, 5000))
def test_memory_is_bounded_and_the_whole_run_stays_visible(count):
    values = history_of(range(count)).values
    assert len(values) <= CAPACITY
    assert count < CAPACITY or len(values) >= CAPACITY // 2
    assert values == sorted(values)
    # The first and last points average at most one group of neighbours each.
    group = 2 * count / CAPACITY + 1
    assert values[0] <= group
    assert values[-1] >= count - 1 - group


def test_thinning_averages_and_skips_nan():
    history = history_of([0.0, math.nan] * (CAPACITY // 2))
    assert history.values == [0.0] * (CAPACITY // 2)
    history.add(8.0)
    assert history.values[-1] == 8.0
    history.add(10.0)
    assert history.values[-1] == 9.0


def test_the_latest_value_stays_while_rows_come_without_it():
    history = History()
    history.record({"env_steps": 1, "eval/return_mean": 7.0})
    history.record({"env_steps": 2, "train/loss": 1.0})
    assert history.latest == {"env_steps": 2, "eval/return_mean": 7.0, "train/loss": 1.0}
    assert set(history.metrics) == {"eval/return_mean", "train/loss"}
    assert history.metrics["eval/return_mean"].last == pytest.approx(7.0)

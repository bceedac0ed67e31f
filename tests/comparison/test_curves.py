"""Runs of unequal lengths and unequal steps share one axis, and none is drawn beyond its end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.comparison.curves import Curve, combine, curve, smoothed
from etude.runs.statistics import interquartile_mean


def line(x: list[float], y: list[float]) -> Curve:
    return Curve(np.array(x, dtype=float), np.array(y, dtype=float))


def test_only_rows_with_the_metric_are_points_and_the_last_of_one_position_counts() -> None:
    rows = [
        {"env_steps": 10, "updates": 1, "a": 1.0},
        {"env_steps": 20, "updates": 1, "a": 2.0},
        {"env_steps": 30, "updates": 2},
        {"env_steps": 40, "updates": 3, "a": 4.0, "time/elapsed_s": 7.5},
    ]
    assert curve(rows, "a", "env_steps").x.tolist() == [10, 20, 40]
    over_updates = curve(rows, "a", "updates")
    assert (over_updates.x.tolist(), over_updates.y.tolist()) == ([1, 3], [2, 4])
    assert curve(rows, "a", "time").x.tolist() == [7.5]
    assert len(curve(rows, "b", "env_steps").x) == 0


def test_unequal_grids_meet_on_one_axis() -> None:
    band = combine([[line([0, 10], [0, 10]), line([0, 4, 10], [0, 8, 20])]])
    assert band.x.tolist() == [0, 4, 10]
    assert band.value == pytest.approx([0, 6, 15])
    assert band.runs.tolist() == [2, 2, 2]
    assert (band.low <= band.value).all()
    assert (band.value <= band.high).all()


def test_a_short_run_is_never_extended() -> None:
    band = combine([[line([0, 10, 20], [0, 0, 0]), line([0, 10], [100, 100])]])
    assert band.value == pytest.approx([50, 50, 0])
    assert band.runs.tolist() == [2, 2, 1]
    assert np.isnan(band.low[-1])  # one run has no interval


def test_a_gap_between_runs_stays_a_gap() -> None:
    band = combine([[line([0, 1], [1, 1]), line([5, 6], [2, 2]), line([3], [9])]])
    assert band.runs.tolist() == [1, 1, 1, 1, 1]
    # At 500 positions on a long axis most lie in the gap.
    many = combine([[line([0, 1], [1, 1]), line([900, 901], [2, 2])]], points=3)
    assert np.isnan(many.value[1])
    assert many.runs.tolist() == [1, 0, 1]


def test_values_that_are_not_finite_are_left_out() -> None:
    band = combine([[line([0, 1, 2], [0, np.nan, 2]), line([0, 1, 2], [np.inf, np.inf, np.inf])]])
    assert band.x.tolist() == [0, 2]
    assert band.runs.tolist() == [1, 1]


def test_nothing_gives_an_empty_band() -> None:
    assert len(combine([]).x) == len(combine([[line([], [])]]).x) == 0


def test_the_interquartile_mean_leaves_out_the_outlier() -> None:
    curves = [line([0, 1], [value, value]) for value in (1, 2, 3, 1000)]
    assert combine([curves], interquartile_mean).value == pytest.approx([2.5, 2.5])


def test_setups_with_one_seed_each_still_have_a_spread() -> None:
    band = combine([[line([0], [1])], [line([0], [5])]])
    assert band.high[0] > band.low[0]


def test_long_runs_are_thinned() -> None:
    x = list(range(100_000))
    band = combine([[line(x, x), line(x, x)]], points=200)
    assert len(band.x) == 200
    assert band.value == pytest.approx(band.x)


def test_smoothing_averages_a_centred_window_and_keeps_straight_lines() -> None:
    wavy = line([0, 1, 2, 3, 4], [0, 2, 0, 2, 0])
    assert smoothed(wavy, 2).y == pytest.approx([0, 2 / 3, 4 / 3, 2 / 3, 0])
    assert smoothed(wavy, 0) is wavy
    straight = line([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert smoothed(straight, 3).y == pytest.approx(straight.y)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.floats(0.1, 40))
def test_smoothing_stays_within_the_values(values: list[float], width: float) -> None:
    found = smoothed(line(list(range(len(values))), values), width).y
    assert min(values) - 1e-6 <= found.min()
    assert found.max() <= max(values) + 1e-6

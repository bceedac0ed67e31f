"""Averages over seeds and their intervals: equal to rliable's and SciPy's, the same every time, honest about one seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.runs.statistics import (
    bootstrap_band,
    estimate,
    interquartile_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    summarise,
)

OURS = [[497.3, 500.0, 412.8, 471.2, 488.9], [-161.2, -150.4, -203.9, -148.8, -170.1]]
THEIRS = [[350.1, 471.2, 300.5, 420.0, 388.8], [-150.4, -199.0, -230.2, -260.7, -181.3]]
ONE_TASK = [[12.5, 3.25, 7.0, 9.75, 21.0, 5.5, 8.125]]

scores = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=12)
few = settings(max_examples=25, deadline=None)


# Made with rliable 1.2.0, 50,000 resamples (5,000 for the probability).
@pytest.mark.parametrize(
    ("strata", "measure", "value", "interval"),
    [
        (OURS, interquartile_mean, 152.08333333333334, (128.18333333, 170.65)),
        (OURS, lambda x, axis: np.mean(x, axis=axis), 153.58, (135.39, 168.3)),
        (OURS, optimality_gap(100.0), 133.44, (125.96, 143.22)),
        (ONE_TASK, interquartile_mean, 8.575, (5.575, 14.25)),
        (ONE_TASK, lambda x, axis: np.mean(x, axis=axis), 9.589285714285714, (6.07142857, 13.94642857)),
        (ONE_TASK, optimality_gap(100.0), 90.41071428571429, (86.05357143, 93.92857143)),
    ],
)
def test_measures_and_intervals_are_those_of_rliable(strata, measure, value, interval) -> None:
    found = estimate(strata, measure)
    assert found.value == pytest.approx(value, rel=1e-12)
    width = interval[1] - interval[0]
    assert found.interval == pytest.approx(interval, abs=0.02 * width)  # the noise of resampling


def test_the_probability_of_improvement_is_that_of_rliable_and_of_mann_whitney() -> None:
    found = probability_of_improvement(OURS, THEIRS)
    assert found.value == pytest.approx(0.84)
    assert found.interval == pytest.approx((0.64, 1.0), abs=0.015)
    # scipy.stats.mannwhitneyu of each task: 0.9 and 0.78 of the pairs.
    for ours, theirs, expected in zip(OURS, THEIRS, (0.9, 0.78), strict=True):
        assert probability_of_improvement([ours], [theirs]).value == pytest.approx(expected)


def test_the_performance_profile_is_that_of_rliable() -> None:
    assert performance_profile(OURS, [-180, -100, 450, 490]) == pytest.approx([0.9, 0.5, 0.4, 0.2])


def test_a_summary_has_every_measure() -> None:
    found = summarise([[1.0, 2.0, 3.0, 4.0, 100.0]], threshold=3.0)
    assert (found.count, found.median, found.low, found.high) == (5, 3.0, 1.0, 100.0)
    assert found.mean.value == 22.0
    assert found.iqm.value == 3.0  # 1 and 100 are cut off
    assert found.std == pytest.approx(43.6176570)
    assert found.optimality_gap is not None
    assert found.optimality_gap.value == pytest.approx((2 + 1) / 5)
    assert summarise([[1.0, 2.0]]).optimality_gap is None


def test_one_seed_has_a_value_and_no_interval() -> None:
    found = summarise([[7.5]])
    assert found.mean == found.iqm == (7.5, None)
    assert found.std is None
    assert probability_of_improvement([[1.0]], [[0.0, 0.5]]) == (1.0, None)
    # One seed in each of two tasks says nothing of the spread over seeds either.
    assert estimate([[1.0], [5.0]]) == (3.0, None)


@pytest.mark.parametrize("strata", [[], [[]], [[1.0], []]])
def test_no_scores_is_an_error(strata: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="no scores"):
        summarise(strata)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_never_becomes_a_result(bad: float) -> None:
    with pytest.raises(ValueError, match="leave them out"):
        summarise([[1.0, bad]])
    with pytest.raises(ValueError, match="leave them out"):
        probability_of_improvement([[1.0]], [[bad]])


def test_both_sides_need_the_same_tasks() -> None:
    with pytest.raises(ValueError, match="2 tasks on one side and 1"):
        probability_of_improvement(OURS, THEIRS[:1])


def test_seeds_are_resampled_within_their_task_only() -> None:
    # Between the tasks lies everything, within them nothing: a stratified interval has no width.
    assert estimate([[0.0, 0.0, 0.0], [100.0, 100.0, 100.0]]).interval == (50.0, 50.0)
    pooled = estimate([[0.0, 0.0, 0.0, 100.0, 100.0, 100.0]]).interval
    assert pooled is not None
    assert pooled.high - pooled.low > 50


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        interval = estimate([generator.normal(size=20)], resamples=500).interval
        assert interval is not None
        covered += interval.low <= 0 <= interval.high
    assert 0.88 <= covered / 200 <= 0.98


def test_a_band_is_the_interval_at_every_point() -> None:
    curves = np.random.default_rng(0).normal(size=(6, 3))
    low, high = bootstrap_band([curves])
    for point in range(3):
        interval = estimate([curves[:, point]]).interval
        assert interval is not None
        assert (low[point], high[point]) == pytest.approx(interval, abs=0.06)


def test_thousands_of_scores_do_not_fill_the_memory() -> None:
    many = np.random.default_rng(0).normal(size=20_000)
    interval = estimate([many], resamples=300).interval
    assert interval is not None
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / np.sqrt(20_000), rel=0.2)


@few
@given(scores)
def test_the_interval_contains_the_estimate_and_lies_within_the_scores(values: list[float]) -> None:
    for measure in (interquartile_mean, lambda x, axis: np.mean(x, axis=axis)):
        found = estimate([values], measure, resamples=300)
        assert found.interval is not None
        assert found.interval.low <= found.value <= found.interval.high
        slack = 1e-9 * max(1.0, *map(abs, values))
        assert min(values) - slack <= found.interval.low
        assert found.interval.high <= max(values) + slack


@few
@given(scores, scores, st.randoms(use_true_random=False))
def test_the_order_of_seeds_changes_nothing(ours: list[float], theirs: list[float], random) -> None:
    shuffled = random.sample(ours, len(ours))
    assert summarise([ours]) == summarise([shuffled])
    assert probability_of_improvement([ours], [theirs]) == probability_of_improvement([shuffled], [theirs])


@few
@given(scores, scores)
def test_the_two_probabilities_add_up_to_one(ours: list[float], theirs: list[float]) -> None:
    forth, back = probability_of_improvement([ours], [theirs]), probability_of_improvement([theirs], [ours])
    assert forth.value + back.value == pytest.approx(1)
    assert forth.interval is not None
    assert 0 <= forth.interval.low <= forth.value <= forth.interval.high <= 1


@few
@given(scores)
def test_a_method_beats_itself_half_of_the_time(values: list[float]) -> None:
    assert probability_of_improvement([values], [values]).value == pytest.approx(0.5)


@few
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=9), st.integers(-500, 500), st.sampled_from([0.5, 2.0, 8.0]))
def test_units_and_offsets_carry_over(values: list[int], offset: int, unit: float) -> None:
    plain, scaled = summarise([values]), summarise([[unit * value + offset for value in values]])
    assert scaled.iqm.value == pytest.approx(unit * plain.iqm.value + offset)
    assert plain.mean.interval is not None
    assert scaled.mean.interval == pytest.approx([unit * end + offset for end in plain.mean.interval])

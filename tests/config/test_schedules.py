"""Values that move over a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.config.compose import compose
from etude.config.schedules import SHAPES, Moment, Schedule, Shape, Stretch
from tests.config.conftest import Complaints, Write

TOTAL = 1000


def test_lin_falls_in_a_straight_line_to_zero_over_the_whole_budget() -> None:
    schedule = Schedule.parse("lin_0.001")
    assert [schedule.at(Moment(step, TOTAL)) for step in (0, 500, 1000, 2000)] == pytest.approx([0.001, 0.0005, 0.0, 0.0])


def test_the_value_at_0_50_and_100_percent_of_the_window_is_the_linear_interpolation() -> None:
    schedule = Schedule.parse({"start": 1.0, "end": 0.5, "start_at": 0.2, "end_at": 0.6})
    assert schedule.at(Moment(0, TOTAL)) == schedule.at(Moment(200, TOTAL)) == 1.0
    assert schedule.at(Moment(400, TOTAL)) == pytest.approx(0.75)
    assert schedule.at(Moment(600, TOTAL)) == schedule.at(Moment(1000, TOTAL)) == 0.5


def test_cos_falls_along_half_a_cosine() -> None:
    schedule = Schedule.parse("cos_0.001")
    values = [schedule.at(Moment(step, TOTAL)) for step in (0, 250, 500, 1000)]
    assert values == pytest.approx([0.001, 0.001 * (1 + 0.5**0.5) / 2, 0.0005, 0.0])
    assert Schedule.parse({"start": 0.001, "shape": "cosine"}) == schedule


def test_a_warm_up_counts_updates_and_what_comes_then_goes_on_as_it_is() -> None:
    schedule, then = Schedule.parse({"warmup": 100, "then": "cos_0.001"}), Schedule.parse("cos_0.001")
    moments = [Moment(10 * updates, TOTAL, updates=updates) for updates in (0, 50, 100, 101)]
    parts = [schedule.at(now) / then.at(now) for now in moments if then.at(now)]
    assert parts == pytest.approx([0.01, 0.5])
    assert schedule.at(moments[-1]) == 0.0  # the run is over
    assert [schedule.moves_by_update(now) for now in moments] == [True, True, False, False]
    constant = Schedule.parse({"warmup": 100, "then": 0.5})
    assert [constant.at(now) for now in moments] == pytest.approx([0.005, 0.25, 0.5, 0.5])
    assert not constant.is_constant


def test_a_warm_up_may_be_a_fraction_of_the_run() -> None:
    schedule = Schedule.parse({"warmup": 0.1, "then": 1.0})
    assert [schedule.at(Moment(step, TOTAL)) for step in (0, 50, 100, 500)] == pytest.approx([0.01, 0.5, 1.0, 1.0])
    offline = Stretch(0.0, 1.0, (("updates", 25, 1000),))
    assert schedule.at(Moment(0, TOTAL, updates=25, stretch=offline)) == pytest.approx(0.25)
    assert schedule.moves_by_update(Moment(0, TOTAL, stretch=offline))
    assert not schedule.moves_by_update(Moment(0, TOTAL))


@pytest.mark.parametrize("key", ["learning_rate", "clip_range", "entropy_coef", "value_coef"])
def test_every_scheduled_setting_takes_every_form(key: str) -> None:
    def schedule(value: str) -> Schedule:
        return getattr(compose("CartPole-v1:ppo", words=[f"algorithm.{key}={value}"]).config.algorithm, key)

    assert schedule("0.1") == Schedule.constant(0.1)
    assert schedule("lin_0.1") == Schedule(0.1, 0.0)
    assert schedule("{start: 0.1, end: 0.01}") == Schedule(0.1, 0.01)
    assert schedule("{warmup: 10, then: cos_0.1}") == Schedule(0.1, 0.0, shape="cosine", warmup=10)


def test_a_position_of_exactly_1_is_the_whole_budget() -> None:
    schedule = Schedule.parse({"start": 1.0, "end": 0.0, "end_at": 1.0})
    assert schedule.at(Moment(TOTAL - 1, TOTAL)) == pytest.approx(0.001)
    assert schedule.at(Moment(TOTAL, TOTAL)) == 0.0
    assert Schedule.parse({"start": 1.0, "end_at": 1}) == schedule


def test_a_position_above_1_is_a_number_of_environment_steps() -> None:
    schedule = Schedule.parse({"start": 1.0, "start_at": 100, "end_at": 300})
    assert [schedule.at(Moment(step, TOTAL)) for step in (100, 200, 300)] == pytest.approx([1.0, 0.5, 0.0])
    assert schedule.at(Moment(200, 10 * TOTAL)) == pytest.approx(0.5)  # whatever the budget
    assert Schedule.parse({"start": 1.0, "end_at": 1.5}).at(Moment(2, TOTAL)) == 0.0


def test_a_start_at_0_and_units_may_differ() -> None:
    schedule = Schedule.parse({"start": 1.0, "start_at": 0, "end_at": 500})
    assert schedule.at(Moment(0, TOTAL)) == 1.0
    mixed = Schedule.parse({"start": 1.0, "start_at": 0.1, "end_at": 300})
    assert mixed.at(Moment(200, TOTAL)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lin_", "must be a number"),
        ("lin_x", "must be a number"),
        ("sin_1", "must be a number"),
        ("cos_", "must be a number"),
        (True, "must be a number"),
        ([1], "must be a number"),
        (float("nan"), "must be finite"),
        ("inf", "must be finite"),
        ({}, "needs a start value"),
        ({"start": "x"}, "must be a number"),
        ({"start": 1, "end": None}, "its end is not a number"),
        ({"start": 1, "end": True}, "its end is not a number"),
        ({"start": 1, "stop": 2}, "not 'stop'"),
        ({"start": 1, "start_at": -0.1}, "at least 0"),
        ({"start": 1, "end_at": 0}, "above 0"),
        ({"start": 1, "start_at": 0.5, "end_at": 0.4}, "must not be before"),
        ({"start": 1, "start_at": 500, "end_at": 400}, "must not be before"),
        ({"start": 1, "shape": "cosinus"}, "line or cosine, not 'cosinus'; did you mean 'cosine'"),
        ({"warmup": 10}, "'then' is missing"),
        ({"then": 1}, "'warmup' is missing"),
        ({"warmup": 10, "then": 1, "unit": "updates"}, "then: cos_3e-4}, not 'unit'"),
        ({"warmup": 0, "then": 1}, "warmup must be above 0"),
        ({"warmup": "x", "then": 1}, "its warmup is not a number"),
        ({"warmup": 10, "then": {"warmup": 10, "then": 1}}, "no warm-up of its own"),
    ],
)
def test_what_is_no_schedule_says_why(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.parse(value)


numbers = st.floats(0.001, 10, allow_nan=False)
positions = st.floats(0.001, 1) | st.integers(2, 2000).map(float)


@given(numbers, numbers, positions, positions, st.integers(0, 3000), st.sampled_from(SHAPES), st.sampled_from([0, 0.1, 7]))
def test_a_schedule_stays_between_its_ends_and_survives_printing(
    start: float, end: float, first: float, last: float, step: int, shape: Shape, warmup: float
) -> None:
    if (first <= 1) == (last <= 1) and first > last:
        first, last = last, first
    schedule = Schedule.parse({"start": start, "end": end, "start_at": first, "end_at": last, "shape": shape})
    low, high = sorted((start, end))
    assert low - 1e-9 <= schedule.at(Moment(step, TOTAL)) <= high + 1e-9
    schedule = Schedule.parse({"warmup": warmup, "then": schedule}) if warmup else schedule
    assert Schedule.parse(schedule.to_plain()) == schedule


@pytest.mark.parametrize("prefix", ["", "algorithm:\n  "])
def test_sibling_keys_fold_into_one_schedule(write: Write, prefix: str) -> None:
    indent = "  " if prefix else ""
    text = prefix + f"\n{indent}".join(
        [
            "policy_lr: 0.001",
            "policy_lr_schedule: linear",
            "policy_lr_schedule_end_value: 0.0001",
            "policy_lr_schedule_start: 0.25",
            "policy_lr_schedule_end: 50000",
            "ent_coef_schedule: linear",
            "ent_coef_schedule_start_value: 0.02",
        ]
    )
    algorithm = compose("CartPole-v1:ppo", file=_plain(write, text)).config.algorithm
    assert algorithm.learning_rate == Schedule(0.001, 0.0001, 0.25, 50000)
    assert algorithm.entropy_coef == Schedule(0.02, 0.0)


def test_siblings_bend_a_lin_string(write: Write) -> None:
    text = "clip_range: lin_0.2\nclip_range_schedule_end_value: 0.05\nclip_range_schedule_end: 0.5"
    assert compose("CartPole-v1:ppo", file=_plain(write, text)).config.algorithm.clip_range == Schedule(0.2, 0.05, 0.0, 0.5)


def test_a_variant_may_schedule_what_its_base_sets(write: Write) -> None:
    text = "vf_coef: 0.5\nppo:\n  vf_coef_schedule: linear\n  vf_coef_schedule_end_value: 0.25"
    assert compose("CartPole-v1:ppo", file=_plain(write, text)).config.algorithm.value_coef == Schedule(0.5, 0.25)


def test_siblings_without_their_schedule_are_not_dropped(complaints: Complaints, write: Write) -> None:
    file = _plain(write, "policy_lr: 0.001\npolicy_lr_schedule_end_value: 0")
    assert "policy_lr_schedule: is missing" in complaints("CartPole-v1:ppo", file=file)[0]
    file = _plain(write, "policy_lr: 0.001\npolicy_lr_schedule: cosine")
    assert complaints("CartPole-v1:ppo", file=file) == ["s.yaml:2: policy_lr_schedule=cosine: must be linear"]


def _plain(write: Write, text: str) -> Path:
    return write("s.yaml", text)

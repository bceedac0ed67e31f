"""What a search may change: choices, ranges, and values that follow from others."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from etude.errors import ConfigError, UserError
from etude.tuning.space import Range, read_space


def test_a_grid_is_every_combination_lists_among_the_values() -> None:
    space = read_space({"a": [1, 2], "b": [[64, 64], [32]], "c": {"low": 0.1, "high": 0.3, "step": 0.1}})
    points = space.grid()
    assert len(points) == space.size == 12
    assert points[0] == {"a": 1, "b": [64, 64], "c": 0.1}
    assert points[-1] == {"a": 2, "b": [32], "c": 0.3}
    assert len({str(point) for point in points}) == 12


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"low": 1, "high": 4}, (1, 2, 3, 4)),
        ({"low": 1, "high": 10, "step": 4}, (1, 5, 9)),
        ({"low": 1e-4, "high": 1e-2, "log": True, "points": 3}, (1e-4, 1e-3, 1e-2)),
        ({"low": 0.0, "high": 1.0, "points": 3}, (0.0, 0.5, 1.0)),
        ({"low": 1, "high": 100, "log": True, "points": 3}, (1, 10, 100)),
    ],
)
def test_a_range_in_a_grid_has_its_steps_or_points(written: dict[str, Any], values: tuple[float, ...]) -> None:
    assert read_space({"k": written}).grid_values()["k"] == values


def test_a_range_without_steps_is_no_part_of_a_grid() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.k: a grid takes a list, or a range with step or points"):
        read_space({"k": {"low": 0.0, "high": 1.0}}).grid_values()


@pytest.mark.parametrize(
    "range_",
    [Range(1e-5, 1e-1, log=True), Range(1, 8, integer=True), Range(1, 64, log=True, integer=True), Range(0, 1, step=0.25)],
)
def test_what_is_drawn_lies_within_and_covers_the_range(range_: Range) -> None:
    drawn = [range_.draw(Random(number)) for number in range(300)]
    assert all(range_.low <= value <= range_.high for value in drawn)
    middle = math.sqrt(range_.low * range_.high) if range_.log else (range_.low + range_.high) / 2
    assert 60 < sum(value < middle for value in drawn) < 240
    assert all(isinstance(value, int) for value in drawn) == range_.integer


def test_a_trial_draws_the_same_whenever_it_is_asked() -> None:
    space = read_space({"a": {"low": 0.0, "high": 1.0}, "b": [1, 2, 3], "c": {"sample_from": "a * uniform(0, 1)"}})
    first = [space.complete(space.draw(7, number), 7, number, dict.__getitem__) for number in range(5)]
    again = [space.complete(space.draw(7, number), 7, number, dict.__getitem__) for number in reversed(range(5))]
    assert first == again[::-1]
    assert first != [space.complete(space.draw(8, number), 8, number, dict.__getitem__) for number in range(5)]


def test_derived_values_follow_from_each_other_and_from_what_is_not_searched() -> None:
    written = {"c": {"sample_from": "b + base.d"}, "a": [3], "b": {"sample_from": "2 * a"}}
    assert read_space(written).complete({"a": 3}, 0, 0, {"base.d": 10}.__getitem__) == {"a": 3, "c": 16, "b": 6}


def test_a_circle_is_an_error_that_names_it() -> None:
    space = read_space({"a": {"sample_from": "b"}, "b": {"sample_from": "a"}})
    with pytest.raises(UserError, match=r"sweep\.a: refers to itself, through a and b and a"):
        space.complete({}, 0, 0, dict.__getitem__)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ([], "an empty list"),
        ([1, 1], "1 is there twice"),
        ({"low": 2, "high": 1}, "low=2 is above high=1"),
        ({"low": 0, "high": 1, "log": True}, "begins above 0"),
        ({"low": 0, "hihg": 1}, "did you mean 'high'"),
        ({"lo": 0}, "did you mean 'low'"),
        ({"values": 3}, "values: must be a list"),
        ({"values": [1], "low": 1}, "nothing goes beside values"),
        ({"sample_from": "1 +"}, "can't be read as an expression"),
        ({"low": "a", "high": 2}, "must be a number"),
    ],
)
def test_what_is_written_wrongly_is_named_with_its_key(written: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as error:
        read_space({"algorithm.k": written})
    assert "sweep.algorithm.k" in str(error.value)

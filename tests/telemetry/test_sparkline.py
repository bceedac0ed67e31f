from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from etude.telemetry.sparkline import BLOCKS, FLAT, sparkline

numbers = st.lists(st.floats(), max_size=200)
finite = st.floats(allow_nan=False, allow_infinity=False)
widths = st.integers(1, 64)


def test_eight_levels():
    assert sparkline(range(8), 8) == "▁▂▃▄▅▆▇█"


def test_nan_is_blank_and_a_constant_is_flat():
    assert sparkline([0.0, math.nan, 1.0], 8) == "▁ █"
    assert sparkline([3.0, math.nan, 3.0], 8) == "─ ─"
    assert sparkline([math.nan, math.inf], 8) == "  "
    assert sparkline([], 8) == ""


def test_many_values_are_averaged():
    assert sparkline([0, 2, 10, 12], 2) == "▁█"
    assert sparkline([0, math.nan, 12, 12], 2) == "▁█"


@given(numbers, widths)
def test_it_is_never_wider_than_asked_and_draws_only_its_alphabet(values, width):
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= {*BLOCKS, FLAT, " "}


@given(finite, st.integers(1, 200), widths)
def test_a_constant_is_flat_however_long(value, count, width):
    assert set(sparkline([value] * count, width)) == {FLAT}


@given(st.lists(finite, min_size=1, max_size=64))
def test_higher_values_are_never_drawn_lower(values):
    line = sparkline(values, 64)
    drawn = [block for _, block in sorted(zip(values, line, strict=True), key=lambda pair: pair[0])]
    assert drawn == sorted(drawn, key=f"{FLAT}{BLOCKS}".index)


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=64, unique=True))
def test_the_extremes_use_the_whole_height(values):
    line = sparkline(values, 64)
    assert line[values.index(min(values))] == "▁"
    assert line[values.index(max(values))] == "█"

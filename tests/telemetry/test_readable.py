from __future__ import annotations

import math

import pytest

from etude.telemetry.readable import duration, number, rate


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (312.4123, "312.4"),
        (487.0, "487.0"),
        (1.0, "1.000"),
        (0.00412345, "0.004123"),
        (3e-4, "0.0003"),
        (2.5e-5, "2.500e-05"),
        (-0.01234567, "-0.01235"),
        (999.96, "1,000"),
        (12345.6, "12,346"),
        (-1234567.0, "-1,234,567"),
        (1.5e12, "1.500e+12"),
        (0.0, "0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_four_significant_digits(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.5/s"), (812, "812/s"), (9812, "9.8k/s"), (9999, "10k/s"), (1.25e6, "1.2M/s")]
)
def test_speeds_are_short(value, shown):
    assert rate(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(6.2, "0:06"), (750, "12:30"), (3723, "1:02:03"), (176523, "2d 1:02:03"), (math.inf, "?")]
)
def test_durations_read_like_a_clock(seconds, shown):
    assert duration(seconds) == shown

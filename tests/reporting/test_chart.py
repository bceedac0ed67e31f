from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from etude.reporting.chart import Chart, Line, Mark, labels, short, svg, thinned, ticks


def line(*values: float, label: str = "a") -> Line:
    return Line(label, np.arange(len(values), dtype=float), np.array(values))


@pytest.mark.parametrize(
    "values",
    [(1.0, 2.0, 3.0), (5.0,), (7.0, 7.0), (0.0, 0.0), (math.nan, math.inf), (1.0, math.nan, 2.0), (-1.7e308, 1.7e308), ()],
)
def test_any_values_are_a_picture_that_is_whole(values: tuple[float, ...]) -> None:
    drawn = svg(Chart("a & <b>", "steps", [line(*values)], [Mark("solved", 2.0)]))
    root = ET.fromstring(drawn)
    assert root.findtext("title") == "a & <b>"
    assert "nan" not in drawn.replace("no finite", "")
    assert "inf" not in drawn.replace("no finite", "")


def test_values_that_are_not_finite_break_the_line() -> None:
    drawn = svg(Chart("a", "steps", [line(1.0, 2.0, math.nan, 3.0, 4.0)]))
    (path,) = [part for part in ET.fromstring(drawn) if part.get("class") == "line c0"]
    assert path.get("d", "").count("M") == 2


def test_a_long_curve_becomes_means_and_keeps_its_extremes_as_a_band() -> None:
    values = np.zeros(10_000)
    values[5_000] = 100.0
    short_line = thinned(Line("a", np.arange(10_000.0), values), points=100)
    assert len(short_line.x) == 100
    assert short_line.high is not None
    assert short_line.high.max() == 100.0
    assert short_line.y.max() == 1.0


@pytest.mark.parametrize(("low", "high"), [(0, 20_000), (-1.0, 1.0), (0.0012, 0.0013), (336.7, 338.1), (1e-9, 2e-9)])
def test_ticks_are_round_within_the_range_and_told_apart(low: float, high: float) -> None:
    found = ticks(low, high, 6)
    assert 2 <= len(found) <= 12
    assert all(low <= value <= high * (1 + 1e-9) for value in found)
    assert len(set(labels(found))) == len(found)


def test_numbers_of_an_axis_are_short() -> None:
    assert [short(value) for value in (0, 0.25, 475, 20_000, 1_500_000, -2e9)] == ["0", "0.25", "475", "20k", "1.5M", "-2G"]

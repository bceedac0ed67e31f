from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from etude.comparison.report import to_csv
from etude.files.csv_text import csv_text
from etude.telemetry.jsonl import JsonlSink, write_csv

HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x")', "-", "＝1"]


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_and_no_heading_is_a_formula(text: str) -> None:
    # Defect 10.
    assert cells(csv_text([text], [{text: text}])) == [[f"'{text}"], [f"'{text}"]]


def test_a_cell_stays_one_cell() -> None:
    assert cells(csv_text(["a"], [{"a": "x\r=1"}, {"a": "\r=1"}])) == [["a"], ["x\n=1"], ["'\n=1"]]


def test_numbers_stay_numbers_and_text_stays_text() -> None:
    row = {"a": -1.5, "b": 3, "c": "-2.5e-3", "d": None, "e": 'CartPole-v1, "x"', "f": -math.inf, "g": "a=1"}
    assert cells(csv_text(list(row), [row, {}])) == [
        list(row),
        ["-1.5", "3", "-2.5e-3", "", 'CartPole-v1, "x"', "-inf", "a=1"],
        [""] * 7,
    ]


def test_exports_and_metrics_are_written_so(tmp_path: Path) -> None:
    # Defect 10: a group, a metric or an environment may be called like a formula.
    assert cells(to_csv([{"group": "=1+1", "mean": -3.0}])) == [["group", "mean"], ["'=1+1", "-3.0"]]
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write([{"env_steps": 1, "=cmd()": -2.0}])
    sink.close()
    write_csv(tmp_path / "metrics.jsonl", tmp_path / "metrics.csv")
    assert cells((tmp_path / "metrics.csv").read_text()) == [["env_steps", "'=cmd()"], ["1", "-2.0"]]

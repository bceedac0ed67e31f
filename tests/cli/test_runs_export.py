"""`etude runs export` as a user meets it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from etude.cli import run as etude
from tests.comparison.synthetic import two_setups, write_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def export(*words: str) -> int:
    return etude(["runs", "export", "--filter", "seed>0", *words])


def test_csv_has_a_row_for_each_group_and_metric(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert export("--metrics", "eval/return_mean,train/entropy") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["group"], row["metric"]) for row in rows] == [
        *(("gamma=0.98", "eval/return_mean"), ("gamma=0.9", "eval/return_mean")),
        *(("gamma=0.98", "train/entropy"), ("gamma=0.9", "train/entropy")),
    ]
    assert float(rows[2]["mean"]) == pytest.approx(0.42, rel=1e-15)
    assert rows[2]["optimality_gap"] == ""
    assert float(rows[0]["mean_low"]) <= 110 <= float(rows[0]["mean_high"])


def test_csv_curves_have_a_row_for_each_position(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert export("--curves", "--x", "updates", "--aggregate", "iqm") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 8
    assert [row["updates"] for row in rows[:4]] == ["100", "200", "300", "400"]
    assert float(rows[3]["iqm"]) == 110
    assert rows[3]["runs"] == "3"


def test_a_curve_without_an_interval_has_empty_cells(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs, "a")
    assert export("--curves") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(",1000,10.0,,,1")


def test_json_is_what_compare_prints(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert export("--format", "json") == 0
    exported = json.loads(capsys.readouterr().out)
    assert etude(["runs", "compare", "--filter", "seed>0", "--json"]) == 0
    assert exported == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("format", "begins"), [("latex", "% needs"), ("markdown", "| Method"), ("csv", "group,"), ("json", "{")]
)
def test_every_format_can_go_to_a_file(runs: Path, format: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert export("--format", format, "--out", "tables/results.txt") == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "wrote tables/results.txt" in output.err
    assert Path("tables/results.txt").read_text().startswith(begins)


def test_one_row_a_run_is_a_way_of_grouping(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert export("--by", "run") == 0
    assert len(capsys.readouterr().out.splitlines()) == 7

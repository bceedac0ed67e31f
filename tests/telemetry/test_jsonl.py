from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import EtudeError
from etude.telemetry import jsonl
from etude.telemetry.jsonl import JsonlSink, read_rows, supersede, write_csv


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def write(path, *steps):
    sink = JsonlSink(path)
    sink.write([{"env_steps": step, "train/loss": step / 3} for step in steps])
    sink.close()


def steps_in(path):
    return [row["env_steps"] for row in read_rows(path)]


def test_rows_come_back_exactly(path, rows):
    sink = JsonlSink(path)
    sink.write(rows[:50])
    sink.write(rows[50:])
    sink.close()
    assert read_rows(path) == rows


@given(st.dictionaries(st.text(min_size=1), st.integers(1 - 2**63, 2**63 - 1) | st.floats()))
def test_any_number_survives_and_every_line_is_strict_json(tmp_path_factory, row):
    path = tmp_path_factory.mktemp("any") / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write([row])
    sink.close()
    (back,) = read_rows(path)
    assert repr(back) == repr(row)

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)


def test_numpy_scalars_are_numbers_too(path):
    sink = JsonlSink(path)
    sink.write([{"env_steps": 1, "train/loss": np.float32(0.5), "train/kl": np.float64("nan")}])
    sink.close()
    (row,) = read_rows(path)
    assert row["train/loss"] == 0.5
    assert math.isnan(row["train/kl"])


def test_a_killed_process_loses_no_row(path):
    program = (
        "import os, signal, sys; from pathlib import Path; from etude.telemetry.jsonl import JsonlSink\n"
        "sink = JsonlSink(Path(sys.argv[1])); sink.write([{'env_steps': 1}]); sink.write([{'env_steps': 2}])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert steps_in(path) == [1, 2]


def test_sync_returns_the_length_of_the_file(path):
    sink = JsonlSink(path)
    assert sink.sync()["metrics_offset"] == 0
    sink.write([{"env_steps": 1}])
    assert sink.sync()["metrics_offset"] == path.stat().st_size
    sink.close()
    again = JsonlSink(path)
    again.write([{"env_steps": 2}])
    assert again.sync()["metrics_offset"] == path.stat().st_size
    again.close()


def test_a_torn_last_line_is_left_out_and_said(path):
    write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(UserWarning, match="last line is incomplete"):
        assert steps_in(path) == [1]


def test_a_last_line_that_only_lacks_its_newline_is_a_row(path):
    write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    assert steps_in(path) == [1, 2]
    write(path, 3)
    assert steps_in(path) == [1, 2, 3]


def test_appending_after_a_torn_line_does_not_glue_rows_together(path):
    write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])
    write(path, 3)
    assert steps_in(path) == [1, 3]


def test_damage_in_the_middle_is_an_error_that_names_the_line(path):
    write(path, 1, 2, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with pytest.raises(EtudeError, match="line 2"):
        read_rows(path)


def test_a_full_disk_leaves_whole_rows(path, monkeypatch):
    sink = JsonlSink(path)
    sink.write([{"env_steps": 1}])

    def half_then_full(data):
        os.write(sink._file.fileno(), data[:5])
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "_write", half_then_full)
        with pytest.raises(OSError, match="No space"):
            sink.write([{"env_steps": 2}])
    assert steps_in(path) == [1]
    assert sink.sync()["metrics_offset"] == path.stat().st_size
    sink.write([{"env_steps": 3}])
    sink.close()
    assert steps_in(path) == [1, 3]


def test_supersede_moves_later_rows_aside(path, tmp_path):
    superseded = tmp_path / "logs" / "superseded.jsonl"
    write(path, 1, 2)
    offset = {"metrics_offset": path.stat().st_size}
    write(path, 3, 4)
    assert supersede(path, offset, superseded) == 2
    assert (steps_in(path), steps_in(superseded)) == ([1, 2], [3, 4])
    write(path, 5)
    assert supersede(path, offset, superseded) == 1
    assert (steps_in(path), steps_in(superseded)) == ([1, 2], [3, 4, 5])
    assert supersede(path, offset, superseded) == 0


def test_supersede_interrupted_halfway_loses_and_repeats_nothing(path, tmp_path, monkeypatch):
    superseded = tmp_path / "superseded.jsonl"
    write(path, 1, 2, 3)
    offset = {"metrics_offset": path.read_bytes().index(b"\n") + 1}
    with monkeypatch.context() as patch:
        replace = jsonl._replace

        def replace_then_die(*arguments):
            replace(*arguments)
            raise KeyboardInterrupt

        patch.setattr(jsonl, "_replace", replace_then_die)
        with pytest.raises(KeyboardInterrupt):
            supersede(path, offset, superseded)
    assert steps_in(path) == [1, 2, 3]
    assert supersede(path, offset, superseded) == 2
    assert (steps_in(path), steps_in(superseded)) == ([1], [2, 3])


def test_supersede_drops_a_torn_last_line(path, tmp_path):
    write(path, 1, 2, 3)
    offset = {"metrics_offset": path.read_bytes().index(b"\n") + 1}
    path.write_bytes(path.read_bytes()[:-4])
    assert supersede(path, offset, tmp_path / "superseded.jsonl") == 1
    assert (steps_in(path), steps_in(tmp_path / "superseded.jsonl")) == ([1], [2])


def test_supersede_refuses_a_file_that_is_not_the_checkpoints(path, tmp_path):
    write(path, 1, 2)
    with pytest.raises(EtudeError, match="rows were removed"):
        supersede(path, {"metrics_offset": 10_000}, tmp_path / "superseded.jsonl")
    with pytest.raises(EtudeError, match="not at the start of a row"):
        supersede(path, {"metrics_offset": 3}, tmp_path / "superseded.jsonl")
    with pytest.raises(EtudeError, match="rows were removed"):
        supersede(tmp_path / "missing.jsonl", {"metrics_offset": 1}, tmp_path / "superseded.jsonl")
    assert steps_in(path) == [1, 2]
    assert not (tmp_path / "superseded.jsonl").exists()


def test_the_csv_has_every_column_of_every_row(path, tmp_path):
    sink = JsonlSink(path)
    first = {"cycles": 1, "env_steps": 8, "decisions": 8, "updates": 0, "episodes": 0, "train/loss": 0.1}
    sink.write([first, {**first, "cycles": 2, "eval/return_mean": math.nan}])
    sink.close()
    table = tmp_path / "metrics.csv"
    table.write_text("an older table")
    write_csv(path, table)
    lines = list(csv.reader(table.read_text().splitlines()))
    assert lines == [
        ["decisions", "env_steps", "updates", "episodes", "cycles", "eval/return_mean", "train/loss"],
        ["8", "8", "0", "0", "1", "", "0.1"],
        ["8", "8", "0", "0", "2", "nan", "0.1"],
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["metrics.csv", "metrics.jsonl"]


def test_reading_nothing_says_so(tmp_path):
    with pytest.raises(EtudeError, match="no such metrics file"):
        read_rows(tmp_path / "metrics.jsonl")


def test_supersede_refuses_rows_that_have_changed_since(path, tmp_path):  # Defect 6
    sink = jsonl.JsonlSink(path)
    sink.write([{"env_steps": 1, "eval/return_mean": 123.5}])
    saved = sink.sync()
    sink.write([{"env_steps": 2}])
    assert sink.supersede(saved, tmp_path / "superseded.jsonl") == 1
    sink.write([{"env_steps": 3}])
    later = sink.sync()
    sink.close()
    assert supersede(path, later, tmp_path / "superseded.jsonl") == 0
    path.write_bytes(path.read_bytes().replace(b"123.5", b"923.5"))
    with pytest.raises(EtudeError, match="rows in it have changed"):
        supersede(path, later, tmp_path / "superseded.jsonl")


@pytest.mark.parametrize("offset", [-5, "3", None, 2.0])
def test_a_position_that_is_none_is_damage(path, tmp_path, offset):  # Defect 8
    write(path, 1)
    with pytest.raises(EtudeError, match="the checkpoint is damaged"):
        supersede(path, {"metrics_offset": offset}, tmp_path / "superseded.jsonl")


@pytest.mark.parametrize("row", ["[" * 100_000, '{"a": ' + "9" * 5_000 + "}", '{"a": ' * 200 + "1" + "}" * 200])
def test_a_hostile_row_is_damage(path, row):  # Defect 8
    path.write_text(row + "\n")
    with pytest.raises(EtudeError, match="line 1 is not a metric row"):
        jsonl.read_rows(path)


def test_rows_are_not_written_through_a_link(path, tmp_path):  # Defect 1
    (tmp_path / "precious").write_text("mine")
    path.symlink_to(tmp_path / "precious")
    with pytest.raises(EtudeError, match="is a link"):
        jsonl.JsonlSink(path)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_link_in_a_temporary_files_place_is_not_written_through(path, tmp_path):  # Defect 1
    (tmp_path / "precious").write_text("mine")
    write(path, 1)
    (tmp_path / ".metrics.csv.tmp").symlink_to(tmp_path / "precious")
    jsonl.write_csv(path, tmp_path / "metrics.csv")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_whole_number_beyond_64_bits_is_a_float(path):
    sink = JsonlSink(path)
    sink.write([{"env_steps": 1, "a": 2**63, "b": -(10**400)}])
    sink.close()
    assert read_rows(path) == [{"env_steps": 1, "a": 2.0**63, "b": -math.inf}]

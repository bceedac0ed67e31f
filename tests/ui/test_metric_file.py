from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from etude.comparison.curves import Curve, curve
from etude.telemetry.jsonl import read_rows
from etude.ui.downsampling import extremes, means, within
from etude.ui.metric_file import MetricFile
from etude.ui.metric_files import MetricFiles
from tests.ui.run_folders import make_run, metric_rows


def write(path: Path, *rows: object) -> None:
    with open(path, "a") as file:
        file.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def whole(path: Path) -> MetricFile:
    file = MetricFile(path)
    while not file.read_on():
        pass
    return file


def test_curves_are_those_of_a_comparison(tmp_path: Path) -> None:
    folder = tmp_path / make_run(tmp_path, 3, rows=200)
    file, rows = whole(folder / "metrics.jsonl"), read_rows(folder / "metrics.jsonl")
    for metric in ("eval/return_mean", "train/loss"):
        for axis in ("env_steps", "decisions", "updates", "episodes", "time"):
            expected, found = curve(rows, metric, axis), file.curve(metric, axis)
            assert np.array_equal(found.x, expected.x)
            assert np.array_equal(found.y, expected.y)
    assert len(file.curve("train/loss", "cycles").x) == 200


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *metric_rows(0, 10, 100.0))
    file = whole(path)
    version = file.version
    assert file.read_on()
    assert file.version == version
    with open(path, "a") as half:
        half.write('{"env_steps": 99, "train/loss"')
    assert file.read_on()
    assert file.version == version
    with open(path, "a") as rest:
        rest.write(": 7.0}\n")
    assert file.read_on()
    assert file.version == version + 1
    assert file.curve("train/loss", "env_steps").y[0] == 7.0


def test_a_file_that_was_cut_and_has_grown_again_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *({"env_steps": step, "train/loss": 1.0} for step in range(10)))
    file = whole(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    write(path, *({"env_steps": step, "train/loss": 2.0} for step in range(5, 30)))
    while not file.read_on():
        pass
    found = file.curve("train/loss", "env_steps")
    assert list(found.y) == [1.0] * 5 + [2.0] * 25


def test_rows_of_a_stranger_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = {"env_steps": 1, "train/loss": 1.0}
    hostile = [
        "",
        "null",
        "[1,2]",
        "[" * 100_000,
        '{"a":' * 5000,
        '{"env_steps":' + "9" * 5000 + "}",
        "\x00\x01",
        "{}",
        '"text"',
        "]",
        "{}][",
    ]
    odd = [
        {"env_steps": 2, "train/loss": "NaN"},
        {"env_steps": 3, "train/loss": "<script>"},
        {"env_steps": 4, "train/loss": None},
        {"env_steps": 5, "train/loss": [1]},
        {"env_steps": 6, "train/loss": {"a": 1}},
        {"env_steps": 10**300, "train/loss": 3.0},
        {f"metric/{number}": 1 for number in range(5000)},
    ]
    write(path, good, *hostile, *odd, {"env_steps": 7, "train/loss": 2.0})
    file = whole(path)
    found = file.curve("train/loss", "env_steps")
    assert list(found.y[:2]) == [1.0, 2.0]
    assert len(file.names) < 2000


def test_a_link_or_a_pipe_in_its_place_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write(secret, {"env_steps": 1, "train/loss": 1.0})
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        assert whole(tmp_path / name).names == []


def test_reading_stops_when_its_time_is_over(tmp_path: Path) -> None:
    files = MetricFiles()
    known = [files.of(tmp_path / make_run(tmp_path, number, rows=5)) for number in range(4)]
    assert files.read(known, longest_s=-1.0) == 4
    assert files.read(known, longest_s=60.0) == 0


def test_no_peak_is_lost() -> None:
    x = np.arange(10_001, dtype=float)
    y = np.sin(x / 300)
    y[1234], y[8765] = 50.0, -50.0
    drawn = extremes(Curve(x, y), 400)
    assert len(drawn.x) <= 410
    assert {50.0, -50.0} <= set(drawn.y)
    assert (drawn.x[0], drawn.x[-1]) == (0.0, 10_000.0)
    assert np.all(np.diff(drawn.x) > 0)
    assert np.isin(drawn.x, x).all()


def test_means_keep_the_mean() -> None:
    x = np.arange(1000, dtype=float)
    short = means(Curve(x, x * 2), 100)
    assert len(short.x) == 100
    assert np.allclose(short.y, short.x * 2)


def test_a_part_has_one_point_beyond_each_end() -> None:
    line = Curve(np.arange(10.0), np.arange(10.0))
    assert list(within(line, 3.5, 6.5).x) == [3, 4, 5, 6, 7]
    assert list(within(line, None, None).x) == list(line.x)
    assert list(within(line, 100.0, 200.0).x) == [9]

"""A run from a stranger lies among the user's own: lists, @best and comparisons answer all the same."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.runs.evaluations import read_evaluations
from etude.runs.index import FILE_NAME, RunIndex
from etude.runs.run import Run
from tests.runs.run_trees import make_run

_HUGE = "1" + "0" * 400
_DEEP = 100_000


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _link_to_endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _written(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text)

    return write


_NUMBERS = {"counters": {"env_steps": 1}, "elapsed_s": 1, "best": {"metric": "eval/return_mean", "value": 1}}
_STRANGE: list[tuple[str, str, Callable[[Path], None]]] = [
    ("deep YAML", "resolved.yaml", _written("[" * _DEEP)),
    ("an alias bomb", "resolved.yaml", _written("a: &a [1, 1]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(20_000)))),
    ("a huge number in YAML", "resolved.yaml", _written(f"experiment: {{seed: {_HUGE}}}")),
    (
        "odd schedules",
        "resolved.yaml",
        _written("a: {start: x, end: [], start_at: {}, end_at: 1}\ntraining: {return_threshold: []}"),
    ),
    ("deep JSON", "summary.json", _written("[" * _DEEP)),
    ("a huge number in JSON", "summary.json", _written(json.dumps(_NUMBERS).replace("1", _HUGE))),
    ("a number beyond 64 bits", "summary.json", _written(json.dumps(_NUMBERS).replace("1", str(2**65)))),
    ("a year before all clocks", "run.json", _written('{"version": 2, "created": "0001-01-01T00:00:00+14:00"}')),
    ("half a character", "run.json", _written('{"version": 2, "name": "\\ud800", "group": "\\udfff"}')),
    ("a huge number in a row", "metrics.jsonl", _written(f'{{"env_steps": {_HUGE}, "eval/return_mean": {_HUGE}}}\n')),
    ("deep rows", "metrics.jsonl", _written("[" * _DEEP + "\n")),
    *((f"a FIFO as {name}", name, _fifo) for name in ("run.json", "summary.json", "metrics.jsonl", "resolved.yaml")),
    *((f"/dev/zero as {name}", name, _link_to_endless) for name in ("summary.json", "metrics.jsonl", "resolved.yaml")),
    *((f"a folder as {name}", name, _folder) for name in ("summary.json", "metrics.jsonl", "resolved.yaml")),
    ("a FIFO as git.json", "provenance/git.json", _fifo),
]


@pytest.mark.parametrize(("name", "spoil"), [case[1:] for case in _STRANGE], ids=[case[0] for case in _STRANGE])
def test_a_stranger_s_run_breaks_no_list(
    name: str, spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Defect 3: a segfault, an OverflowError or a wait without end, for the whole list.
    own, strange = make_run(tmp_path, "own", best=50.0), make_run(tmp_path, "strange", best=None)
    spoil(strange.path / name)
    assert own.id in [run.id for run in RunIndex(tmp_path).rebuild().runs]
    assert Run.resolve("@best", tmp_path).id in (own.id, strange.id)
    for words in (
        ["list"],
        ["list", "--json"],
        ["list", "--filter", "date>2020-01-01"],
        ["rebuild"],
        ["list", "--sort", "best"],
    ):
        assert etude(["runs", *words, "--runs", str(tmp_path)]) == 0
    assert etude(["runs", "show", str(strange.path)]) in (0, 2)
    assert etude(["runs", "compare", str(own.path), str(strange.path)]) in (0, 2)
    said = capsys.readouterr()
    assert own.id in said.out
    assert "Traceback" not in said.err


def test_the_index_is_no_link_to_another_database(tmp_path: Path) -> None:
    root, own = tmp_path / "runs", tmp_path / "own.sqlite"
    run = make_run(root, "x")
    with closing(sqlite3.connect(own)) as connection:
        connection.execute("CREATE TABLE runs (mine TEXT)")
        connection.execute("INSERT INTO runs VALUES ('kept')")
        connection.commit()
    before = own.read_bytes()
    (root / FILE_NAME).symlink_to(own)
    assert [row.id for row in RunIndex(root).read().runs] == [run.id]
    assert own.read_bytes() == before


def test_evaluations_of_a_stranger_are_read_with_limits(tmp_path: Path) -> None:
    lines = [
        "[" * _DEEP,
        f'{{"version": 1, "seed": {_HUGE}}}',
        "\ud800".encode(errors="surrogatepass").decode(errors="replace"),
    ]
    (tmp_path / "evaluations.jsonl").write_text("\n".join([*lines, '{"version": 1, "run": "x"}']) + "\n")
    assert read_evaluations(tmp_path) == [{"version": 1, "run": "x"}]
    (tmp_path / "evaluations.jsonl").unlink()
    assert read_evaluations(tmp_path) == []

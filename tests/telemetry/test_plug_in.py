"""Sinks of one's own: named in a config, told of the run, and never its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.telemetry import background
from tests.faults.tiny_run import TRAIN, only_run, resume, train

OWN = """
import threading

MADE = []
RELEASED = threading.Event()


class Own:
    def __init__(self, run, place="here", breaks_in="", hangs_in=""):
        self.run, self.place, self.breaks_in, self.hangs_in = run, place, breaks_in, hangs_in
        self.rows, self.results, self.closed = [], [], False
        MADE.append(self)
        self._at("init")

    def write(self, rows):
        self._at("write")
        self.rows += rows

    def write_results(self, results):
        self.results += results

    def flush(self):
        self._at("flush")

    def close(self):
        self._at("close")
        self.closed = True

    def _at(self, where):
        if where == self.hangs_in:
            RELEASED.wait()
        if where == self.breaks_in:
            raise RuntimeError(f"no {where}")


class Picky(Own):
    @classmethod
    def check(cls):
        from etude.errors import UserError

        raise UserError("the machine room is closed")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "own_sink.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_sink", raising=False)
    import own_sink  # type: ignore[import-not-found] # written just now

    yield own_sink
    own_sink.RELEASED.set()


def sinks(**options: str) -> str:
    told = "".join(f", {name}: {value}" for name, value in options.items())
    return f"logging.sinks=[{{type: own_sink.Own{told}}}]"


def test_a_sink_by_its_import_path_is_told_of_the_run_and_gets_its_rows_and_results(own: Any, tmp_path: Path) -> None:
    assert train(tmp_path / "runs", sinks(place="there"), "experiment.group=g", "experiment.tags=[a]") == 0
    run = only_run(tmp_path / "runs")
    (made,) = own.MADE
    assert (made.run.id, made.run.directory, made.run.group, made.run.tags) == (run.id, run.path, "g", ("a",))
    assert (made.place, made.run.rows_before, made.run.config["algorithm"]["name"], made.closed) == ("there", 0, "ppo", True)
    assert [row["env_steps"] for row in made.rows] == [row["env_steps"] for row in made.rows if "decisions" in row]
    assert [result.kind for result in made.results] == ["report", "policy", "checkpoint"]
    assert resume(run, "training.total_steps=384") == 0
    assert own.MADE[1].run.rows_before == len(made.rows)


@pytest.mark.parametrize("where", ["init", "write", "flush", "close"])
def test_one_that_fails_is_one_line_and_the_run_is_finished(
    where: str, own: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "runs", sinks(breaks_in=where)) == 0
    assert only_run(tmp_path / "runs").status == "finished"
    said = f"logging.sinks[0] (own_sink.Own) failed and is off for the rest of this run: no {where}"
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.parametrize("where", ["init", "write", "close"])
def test_one_that_hangs_is_given_up(
    where: str, own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background.BackgroundSink.__init__, "__kwdefaults__", {"patience_s": 0.2})
    assert train(tmp_path / "runs", sinks(hangs_in=where)) == 0
    assert only_run(tmp_path / "runs").status == "finished"
    assert capsys.readouterr().err.count("no answer for 0.2 seconds") == 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("logging.sinks=[{type: own_sink.Own, plaec: x}]", "unknown option of 'own_sink.Own'"),
        ("logging.sinks=[{type: own_sink.Own, run: x}]", "is set from elsewhere"),
        ("logging.sinks=[{type: own_sink.Nobody}]", "Nobody"),
        ("logging.sinks=[{type: nebtune}]", "did you mean"),
        ("logging.sinks=[{type: own_sink.Picky}]", "logging.sinks[0] (own_sink.Picky): the machine room is closed"),
        ("logging.sinks=[{type: threading.Event}]", "is no sink"),
    ],
)
def test_a_wrong_sink_is_refused_before_the_run_exists(
    word: str, said: str, own: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "runs", word) != 0
    assert said in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("2*"))


def test_a_strangers_sink_is_not_imported(own: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude([*TRAIN, sinks(), "--runs", str(tmp_path / "runs")]) == 0
    run = only_run(tmp_path / "runs")
    (run.path / "provenance" / "origin.json").unlink()
    before = len(own.MADE)
    assert resume(run, "training.total_steps=384") == 2
    assert "pass --trust" in capsys.readouterr().err
    assert len(own.MADE) == before

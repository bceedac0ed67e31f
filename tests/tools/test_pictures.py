from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from etude.telemetry.jsonl import JsonlSink
from tests.runs.run_trees import make_run
from tests.telemetry.conftest import made_up_rows
from tools.pictures import main


def drawn(what: str, folder: Path, out: Path, *options: str) -> str:
    main([what, str(folder), str(out), *options])
    text = out.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert "url(http" not in text
    return text.replace("&#160;", " ")


def test_a_run_becomes_a_picture_without_scripts(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(made_up_rows())
    sink.close()
    shown = drawn("live", tmp_path, tmp_path / "live-view.svg", "--at", "0.6", "--spec", "CartPole-v1:ppo")
    assert "59,392 / 99,328 steps" in shown
    assert "explained_variance" in shown


def test_a_table_of_runs_becomes_a_picture_that_stands_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "first", best=123.4, tags=["paper"])
    shown = drawn("runs", tmp_path / "runs", tmp_path / "runs-list.svg")
    assert "123.4" in shown
    assert "paper" in shown

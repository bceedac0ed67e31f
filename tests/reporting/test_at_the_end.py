"""Every run ends with its report, and none ends by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.reporting.writing import ReportError
from etude.telemetry.jsonl import JsonlSink
from etude.training import sitting
from tests.faults.tiny_run import only_run, resume, train


def test_a_finished_run_has_a_report_and_one_resumed_has_it_anew(tmp_path: Path) -> None:
    assert train(tmp_path) == 0
    run = only_run(tmp_path)
    text = run.report_path.read_text()
    assert "finished: the budget is spent" in text
    assert "**environment steps**: 320 of 320" in text
    assert "<svg" in run.report_page_path.read_text()
    assert resume(run, "training.total_steps=384") == 0
    assert "384 of 384" in run.report_path.read_text()


def test_a_run_that_failed_has_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "metrics.jsonl")

    with monkeypatch.context() as patch:
        patch.setattr(JsonlSink, "write", full)
        assert train(tmp_path) == 1
    assert "failed" in only_run(tmp_path).report_path.read_text()


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    assert train(tmp_path, "logging.report=false") == 0
    assert not only_run(tmp_path).report_path.exists()


def test_a_report_that_fails_is_one_line_and_the_run_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path) -> None:
        raise ReportError("the report could not be written: ZeroDivisionError")

    monkeypatch.setattr(sitting, "write_run_report", fail)
    assert train(tmp_path) == 0
    assert only_run(tmp_path).status == "finished"
    said = [line for line in capsys.readouterr().err.splitlines() if "could not be written" in line]
    assert len(said) == 1
    assert "`etude report" in said[0]

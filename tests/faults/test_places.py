"""A run goes on wherever its directory lies and whatever the clock says."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from etude.cli import run as run_command
from etude.runs import checkpoint as checkpoint_module
from etude.runs import run as run_module
from etude.runs.index import find_runs
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.faults.tiny_run import assert_ends_as, assert_one_clear_line, only_run, resume, train
from tests.runs_compared import stopped_after


@pytest.fixture
def stopped(tmp_path: Path) -> Run:
    with stopped_after(5):
        assert train(tmp_path / "runs") == 130
    return only_run(tmp_path / "runs")


def test_a_renamed_run_goes_on_under_its_new_name(stopped: Run, whole: Run) -> None:
    stopped.path.rename(stopped.path.with_name("the-good-one"))
    root = stopped.path.parent
    assert run_command(["resume", "the-good-one", "--runs", str(root), "-q"]) == 0
    run = only_run(root)
    assert run.id == "the-good-one"
    assert_ends_as(whole, run)


def test_a_run_copied_from_another_machine_goes_on_here(
    stopped: Run, whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed there: it says `running`, of a process that nobody here can know about."""
    there = {**stopped.record, "status": "running", "host": "another-machine", "pid": 1}
    stopped.record_path.write_text(json.dumps(there))
    copy = tmp_path / "elsewhere" / stopped.id
    # As a USB stick or an object store brings it: without links, without the lock.
    shutil.copytree(stopped.path, copy, ignore=shutil.ignore_patterns("last", "best", ".lock", ".record.lock"))
    run = Run.open(copy)
    assert run.status == "running"
    assert resume(run) == 0
    assert run.record["host"] != "another-machine"
    assert_ends_as(whole, run)


def test_a_runs_directory_that_became_a_link_is_the_same_directory(stopped: Run, whole: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").rename(tmp_path / "moved")
    (tmp_path / "runs").symlink_to(tmp_path / "moved")
    assert run_command(["resume", "@last", "--runs", str(tmp_path / "runs"), "-q"]) == 0
    assert [found.status for found in find_runs(tmp_path / "runs")] == ["finished"]
    assert_ends_as(whole, only_run(tmp_path / "moved"))
    assert train(tmp_path / "runs") == 0
    assert len(find_runs(tmp_path / "moved")) == 2


def test_a_clock_that_was_set_back_changes_nothing(
    stopped: Run, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sitting was a year ahead: in its files' times, and in what they say."""

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=400)

    ahead = time.time() + 365 * 86400
    for path in (stopped.path, *stopped.path.rglob("*")):
        os.utime(path, (ahead, ahead), follow_symlinks=False)
    find_runs(tmp_path / "runs")
    for module in (run_module, checkpoint_module):
        monkeypatch.setattr(module, "datetime", Earlier)
    monkeypatch.setattr(time, "time", lambda: ahead - 800 * 86400)
    assert resume(stopped) == 0
    assert_ends_as(whole, stopped)
    assert [found.status for found in find_runs(tmp_path / "runs")] == ["finished"]
    elapsed = [row["time/elapsed_s"] for row in read_rows(stopped.metrics_path)]
    assert elapsed == sorted(elapsed), "time spent training only grows"
    newest = max(stopped.checkpoints().list(), key=lambda saved: saved.sequence)
    assert newest.created < stopped.record["created"], "it says when, and nothing goes by it"
    assert stopped.checkpoints().find("last").name == newest.name


def test_rows_that_are_gone_are_missed_and_not_forgotten(stopped: Run, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.metrics_path.unlink()
    assert resume(stopped) == 1
    assert_one_clear_line(capsys, "metrics.jsonl", "rows were removed from it since")


def test_a_run_killed_before_its_first_save_begins_anew_under_its_id(stopped: Run, whole: Run) -> None:
    for path in (*stopped.checkpoints_path.iterdir(), stopped.metrics_path):
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    assert resume(stopped) == 0
    assert "ended before its first save, and begins anew" in stopped.log_path.read_text()
    assert_ends_as(whole, stopped)


def test_a_run_whose_saves_are_gone_does_not_begin_anew(stopped: Run, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(stopped.checkpoints_path)
    assert resume(stopped) == 1
    assert_one_clear_line(capsys, "has no checkpoint to continue from")


def test_a_run_killed_between_its_last_save_and_its_last_word_is_finished_by_a_resume(whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.path, tmp_path / whole.id, symlinks=True)
    run = only_run(tmp_path)
    run.record_path.write_text(json.dumps({**run.record, "status": "running", "pid": 2**22 + 1}))
    run.summary_path.unlink()
    run.csv_path.unlink()
    assert run.status == "crashed"
    assert resume(run) == 0
    assert run.summary["status"] == "finished"
    assert run.csv_path.exists()
    assert_ends_as(whole, run)

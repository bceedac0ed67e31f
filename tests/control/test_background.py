"""Trainings in the background: started, found, stopped and resumed from another process, and never a stranger's process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude import control
from etude.control import background
from etude.errors import EtudeError, UserError
from etude.runs.process import descends_from, this_process
from etude.runs.records import write_record
from etude.runs.run import Run
from tests.forked import fork_instead

LONG = ["CartPole-v1:ppo", "training.total_steps=100000000", "evaluation.every_steps=0", "experiment.compile=off"]
PATIENCE_S = 120.0


def wait_for_status(run: Run, *statuses: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (status := run.status) not in statuses:
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.1)
    return status


def test_a_training_is_started_stopped_and_resumed_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = control.start(LONG, tmp_path)
    try:
        assert started.run.path.parent == tmp_path
        assert started.run.status == "running"
        assert os.getsid(started.pid) == started.pid != os.getsid(0)  # it outlives this process's terminal
        with pytest.raises(UserError, match="running already"):
            control.resume(started.run)
    finally:
        control.stop(started.run)
    assert wait_for_status(started.run, "interrupted", "crashed", "failed") == "interrupted"
    with pytest.raises(UserError, match="not running: it is interrupted"):
        control.stop(started.run)
    steps = started.run.summary["counters"]["env_steps"]
    fork_instead(background, monkeypatch)
    again = control.resume(started.run, [f"training.total_steps={steps + 512}"])
    assert again.id == started.id
    assert wait_for_status(again.run, "finished", "crashed", "failed") == "finished"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what to train"),
        (["CartPole-v1:ppo", "algorithm.learning_rat=1"], "learning_rat"),
        (["CartPole-v1:pppo"], "pppo"),
        (["CartPole-v1:ppo", "--trust"], "no options"),
        (["--help"], "no options"),
        (["CartPole-v1:my.module:Algorithm"], "my.module"),
    ],
)
def test_a_slip_is_told_before_anything_is_started(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        control.start(words, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_only_the_child_can_find_is_told_as_its_first_error_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_instead(background, monkeypatch)
    with pytest.raises(EtudeError, match="NoSuchTask") as caught:
        control.start(["NoSuchTask-v0:ppo"], tmp_path)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).startswith("etude:")


def test_a_stranger_with_the_same_number_is_never_sent_a_signal(tmp_path: Path) -> None:
    """The process that has the run's number now began at another time."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        run = Run(tmp_path / "20260101-000000-x")
        run.path.mkdir()
        record = {"version": 1, "id": run.id, "name": "x", "status": "running", **this_process()}
        write_record(run.record_path, {**record, "pid": stranger.pid, "pid_started": "1"})
        with pytest.raises(UserError, match="crashed"):
            control.stop(run)
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_processes_descend_from_those_that_started_them() -> None:
    assert descends_from(os.getpid(), os.getpid())
    assert descends_from(os.getpid(), os.getppid())
    assert not descends_from(os.getppid(), os.getpid())

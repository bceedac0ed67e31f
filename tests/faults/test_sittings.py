"""Signals in the middle of a save, several processes on one run, and workers whose parent is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """What happened; that every run was then resumed to the same end has been checked where it happened."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        command = [sys.executable, "-m", "tests.faults.sitting_driver", folder]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_in_the_middle_of_a_save_saves_and_stops(name: str, told: dict[str, Any]) -> None:
    assert told[name] == {"code": 130, "status": "interrupted", "listed": "interrupted", "reason": name}


def test_a_second_interrupt_in_the_middle_of_a_save_stops_at_once_and_loses_nothing(told: dict[str, Any]) -> None:
    assert told["SIGINT twice"]["code"] == 130
    assert told["SIGINT twice"]["status"] == told["SIGINT twice"]["listed"] == "interrupted"


def test_a_second_sigterm_ends_the_process_and_loses_nothing(told: dict[str, Any]) -> None:
    assert told["SIGTERM twice"]["code"] == -signal.SIGTERM
    assert told["SIGTERM twice"]["status"] == told["SIGTERM twice"]["listed"] == "crashed"


def test_a_terminal_that_is_gone_does_not_keep_a_signal_from_saving(told: dict[str, Any]) -> None:
    assert (told["no terminal"]["code"], told["no terminal"]["status"]) == (130, "interrupted")


def test_a_second_process_is_refused_and_a_dead_ones_lock_is_nobodys(told: dict[str, Any]) -> None:
    two = told["two processes"]
    assert two["refused"] == 2
    assert two["said"].splitlines()[-1].endswith(f"is in use by process {two['first']}; wait for it to end, or stop it")
    assert two["status"] == "running"
    assert two["left in the lock"] == str(two["first"]), "the file is left behind; that it is there means nothing"
    assert two["afterwards"] == "crashed"


def test_no_worker_outlives_a_process_group_that_was_killed(told: dict[str, Any]) -> None:
    assert told["workers"]["workers"] >= 3, "two workers and what forked them"
    assert told["workers"]["orphans"] == []

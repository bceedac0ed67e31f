"""Calls in processes of their own: what happens in one stays there, and is told."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from etude.errors import EtudeError, MissingPackageError
from etude.isolation import Call, Result, run_isolated


def work(tell: Any, how: str) -> None:
    tell(stage="first")
    print("printed", how)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os.write(2, b"FatalError: no GL here\n")
        os._exit(3)
    elif how == "raise":
        raise ValueError("a bug\nof two lines")
    elif how == "missing":
        raise MissingPackageError("needs x: pip install x")
    elif how == "refuse":
        raise EtudeError("can't do that")
    elif how == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        tell(child=child.pid)
        time.sleep(60)
    tell(variable=os.environ.get("ETUDE_OF_THE_TESTS"))


def results(*ways: str, timeout_s: float = 30.0, jobs: int = 3) -> dict[str, Result]:
    calls = [Call(way, work, (way,)) for way in ways]
    return {result.name: result for result in run_isolated(calls, jobs=jobs, timeout_s=timeout_s)}


def test_every_way_to_end_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ETUDE_OF_THE_TESTS", "seen")
    found = results("work", "segfault", "exit", "raise", "missing", "refuse")
    assert {name: result.status for name, result in found.items()} == {
        "work": "done", "segfault": "died", "exit": "raised", "raise": "raised", "missing": "missing", "refuse": "refused",
    }  # fmt: skip
    assert "SIGSEGV" in found["segfault"].detail
    assert found["exit"].detail == "FatalError: no GL here"
    assert "ValueError: a bug" in found["raise"].output
    assert found["missing"].detail == "needs x: pip install x"
    assert found["work"].facts == {"stage": "first", "variable": "seen"}
    assert all(result.facts["stage"] == "first" for result in found.values())
    assert found["work"].output == "printed work\n"
    assert capfd.readouterr() == ("", "")


def test_one_that_hangs_is_ended_with_all_it_started() -> None:
    began = time.monotonic()
    found = results("hang", "work", timeout_s=1.5)
    assert found["hang"].status == "hung"
    assert found["work"].status == "done"
    assert time.monotonic() - began < 20
    for _ in range(100):
        try:
            os.kill(found["hang"].facts["child"], 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the process that it started is still there")


def test_whoever_stops_asking_leaves_nothing_running() -> None:
    calls = [Call("work", work, ("work",)), Call("hang", work, ("hang",))]
    asked = run_isolated(calls, jobs=2, timeout_s=60)
    assert next(asked).name == "work"
    began = time.monotonic()
    asked.close()
    assert time.monotonic() - began < 5

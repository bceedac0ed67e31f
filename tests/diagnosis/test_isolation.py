"""Calls in processes of their own: what happens in one stays there, and is told."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etude.diagnosis import isolation
from etude.diagnosis.isolation import Call, Result, run_isolated
from etude.errors import EtudeError, MissingPackageError


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
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        tell(child=child.pid)
        Path(os.environ["ETUDE_OF_THE_TESTS"]).touch()
        tell(stage="hangs")
        time.sleep(1000)
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


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says that the call which hangs does so by now."""
    monkeypatch.setenv("ETUDE_OF_THE_TESTS", str(tmp_path / "hanging"))
    return tmp_path / "hanging"


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # the test's own limit ends what never comes
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_that_hangs_is_ended_with_all_it_started(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that jumps a minute ahead once the call hangs: a busy machine takes as long as it likes until then.
    monkeypatch.setattr(isolation, "time", SimpleNamespace(monotonic=lambda: 61.0 if hanging.exists() else 0.0))
    found = results("work", "hang", timeout_s=60, jobs=1)
    assert found["work"].status == "done"
    assert (found["hang"].status, found["hang"].detail) == ("hung", "gave no answer for 60 s")
    wait_until(lambda: is_gone(found["hang"].facts["child"]))


def test_whoever_stops_asking_leaves_nothing_running(hanging: Path) -> None:
    calls = [Call("work", work, ("work",)), Call("hang", work, ("hang",))]
    asked = run_isolated(calls, jobs=2, timeout_s=1000)
    assert next(asked).name == "work"
    wait_until(hanging.exists)
    asked.close()
    assert not multiprocessing.active_children()

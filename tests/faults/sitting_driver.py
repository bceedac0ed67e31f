"""What signals and other processes do to a sitting: `python -m tests.faults.sitting_driver ROOT`; prints one JSON object.

Everything is imported once, and each sitting is a fork of this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from etude.runs import provenance
from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.faults.failing_disk import Call, FailingDisk, failing
from tests.faults.tiny_run import assert_ends_as, assert_whole_to_the_last_row, only_run, resume, train
from tests.runs_compared import rows

WORKERS = ("environment.workers=2", "environment.backend=gymnasium")
Watch = Callable[[int, Call], None]


def sitting(
    root: Path, run: Run | None = None, watch: Watch | None = None, words: tuple[str, ...] = (), stderr: int = -1
) -> int:
    """Train, or resume, in a fork; `watch` is called there at every call that changes the disk. Returns the fork's pid."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY) if stderr < 0 else stderr, 2)

    def fails(number: int, call: Call) -> bool:
        if watch is not None:
            watch(number, call)
        return False

    with failing(FailingDisk(root, fails)):
        os._exit(train(root, *words) if run is None else resume(run))


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def signals_in_a_save(*numbers: int) -> Watch:
    """Sends this process the signals, one at each call from the middle of its third save on."""
    manifests, left = 0, list(numbers)

    def watch(number: int, call: Call) -> None:
        nonlocal manifests
        manifests += call.path.endswith("manifest.json") and call.operation == "open"
        if manifests >= 3 and left:
            os.kill(os.getpid(), left.pop(0))

    return watch


def after_signals(root: Path, whole: Run, *numbers: int, stderr: int = -1) -> dict[str, Any]:
    code = ended(sitting(root, watch=signals_in_a_save(*numbers), stderr=stderr))
    run = only_run(root)
    assert_whole_to_the_last_row(run)
    (found,) = find_runs(root)
    told = {"code": code, "status": run.status, "listed": found.status, "reason": run.record.get("stop_reason")}
    assert ended(sitting(root, run)) == 0
    assert_ends_as(whole, run)
    return told


def with_a_terminal_that_is_gone(root: Path, whole: Run) -> dict[str, Any]:
    reading, writing = os.pipe()
    os.close(reading)
    return after_signals(root, whole, signal.SIGTERM, stderr=writing)


def two_processes(root: Path, whole: Run) -> dict[str, Any]:
    """The second is refused; the lock of the first goes with it, however it ends."""
    first = sitting(root, watch=lambda number, call: os.kill(os.getpid(), signal.SIGSTOP) if number == 100 else None)
    os.waitpid(first, os.WUNTRACED)
    run = only_run(root)
    said = root / "said.txt"
    refused = ended(sitting(root, run, stderr=os.open(said, os.O_WRONLY | os.O_CREAT)))
    status = run.status
    os.kill(first, signal.SIGKILL)
    ended(first)
    left = (run.path / ".lock").read_text().strip()
    crashed = run.status
    assert ended(sitting(root, run)) == 0
    assert_ends_as(whole, run)
    told = {"refused": refused, "said": said.read_text(), "first": first, "status": status}
    return {**told, "left in the lock": left, "afterwards": crashed}


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def workers_of_a_killed_group(root: Path, whole: Run) -> dict[str, Any]:
    child = sitting(root, watch=signals_in_a_save(signal.SIGSTOP), words=WORKERS)
    os.waitpid(child, os.WUNTRACED)
    workers = descendants(child)
    os.killpg(child, signal.SIGKILL)
    ended(child)
    deadline = time.monotonic() + 60
    while any(_runs(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    orphans = [pid for pid in workers if _runs(pid)]
    run = only_run(root)
    # Nothing that is left of the first holds the lock. Workers give the rows that one process gives.
    assert ended(sitting(root, run)) == 0
    assert run.status == "finished"
    assert rows(run) == rows(whole)
    return {"workers": len(workers), "orphans": orphans}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main(root: Path) -> None:
    torch.set_num_threads(1)
    for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, usual)  # `nohup` and a shell's background turn them off
    provenance.installed_packages = dict  # type: ignore[assignment] # many runs are made here
    os.chdir(root)
    assert train(root / "whole") == 0  # here, so that no fork has anything left to import
    whole = only_run(root / "whole")
    told = {
        "SIGTERM": after_signals(root / "term", whole, signal.SIGTERM),
        "SIGHUP": after_signals(root / "hup", whole, signal.SIGHUP),
        "SIGINT twice": after_signals(root / "int", whole, signal.SIGINT, signal.SIGINT),
        "SIGTERM twice": after_signals(root / "terms", whole, signal.SIGTERM, signal.SIGTERM),
        "no terminal": with_a_terminal_that_is_gone(root / "gone", whole),
        "two processes": two_processes(root / "two", whole),
        "workers": workers_of_a_killed_group(root / "workers", whole),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

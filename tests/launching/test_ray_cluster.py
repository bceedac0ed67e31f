"""Against a real Ray on this machine: a task whose worker is killed is run again, and its run goes on from where it is kept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.runs_compared import assert_same_run, train

RAY = Path(sys.executable).parent / "ray"
pytestmark = [
    pytest.mark.optional,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not RAY.exists(), reason="ray is not installed here (extra ray)"),
    pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed here"),
]
ROOT = Path(__file__).parents[2]
WORDS = ("training.total_steps=60000", "algorithm.epochs=4", "evaluation.episodes=2", "evaluation.every_steps=5000")
LONG_S = 900.0


@pytest.fixture
def address(tmp_path: Path, home: Path) -> Iterator[str]:
    """The dashboard of a Ray with two cores, gone afterwards."""
    ports = []
    for _ in range(2):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            ports.append(taken.getsockname()[1])
    environment = _environment(tmp_path, home)
    # Sockets have short names.
    folder = Path("/tmp") / f"ray-{os.getpid()}"
    words = [str(RAY), "start", "--head", "--num-cpus=2", f"--port={ports[0]}", f"--dashboard-port={ports[1]}", "--block",
             "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--temp-dir={folder}", "--disable-usage-stats",
             "--object-store-memory=200000000"]  # fmt: skip
    with (tmp_path / "ray.log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + LONG_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{ports[1]}/api/version", timeout=10):
                break
            assert time.monotonic() < deadline, (tmp_path / "ray.log").read_text()
            assert process.poll() is None, (tmp_path / "ray.log").read_text()
            time.sleep(0.5)
        yield f"http://127.0.0.1:{ports[1]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _environment(tmp_path: Path, home: Path) -> dict[str, str]:
    found = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": str(home)}
    return found | {"PATH": f"{RAY.parent}:{os.environ['PATH']}", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def test_a_task_that_lost_its_worker_goes_on(address: str, tmp_path: Path, home: Path) -> None:
    work, store = tmp_path / "work", tmp_path / "store"
    work.mkdir()
    store.mkdir()

    def launch(*words: str) -> str:
        command = [sys.executable, "-m", "etude", "launch", *words]
        done = subprocess.run(
            command, cwd=work, env=_environment(tmp_path, home), capture_output=True, text=True, check=False, timeout=LONG_S
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    there = tmp_path / "there"
    launch("ray", "--address", address, "--remote", str(there), "--upload", str(store), "--job-name", "it", "--cpus", "1",
           "train", "CartPole-v1:ppo", *WORDS, "--seed", "1,2", "--group", "g")  # fmt: skip
    _wait("steps", lambda: len(_steps(there)) == 2 and min(_steps(there)) > 3000, lambda: launch("logs", "it"))
    victim = _worker_of(there / "it" / "0")
    os.kill(victim, signal.SIGKILL)  # as if its machine had died; the training is told, and saves itself
    states = lambda: re.findall(r"^ +\d  (\w+)", launch("status", "it"), re.MULTILINE)  # noqa: E731
    _wait("the end", lambda: states() == ["finished", "finished"], lambda: launch("logs", "it"))
    assert "goes on with run" in launch("logs", "it")
    launch("sync", "it")
    runs = find_runs(work / "runs", group="g")
    assert sorted((run.seed, run.status) for run in runs) == [(1, "finished"), (2, "finished")]
    for run in runs:
        alone = train("CartPole-v1:ppo", tmp_path / "alone", *WORDS, f"experiment.seed={run.seed}", "experiment.group=g")
        assert_same_run(Run(run.path), alone)


def _wait(what: str, is_so: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}\n{log()}"
        time.sleep(1)


def _steps(there: Path) -> list[int]:
    found = [re.findall(r'"env_steps":(\d+)', path.read_text()) for path in there.glob("it/*/2*/metrics.jsonl")]
    return [int(rows[-1]) if rows else 0 for rows in found]


def _worker_of(runs: Path) -> int:
    """The process of Ray that started the training which writes to this folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"--runs={runs}".encode() in words:
            status = (entry / "status").read_text()
            return int(re.findall(r"^PPid:\s+(\d+)", status, re.MULTILINE)[0])
    raise AssertionError(f"nobody trains in {runs}")

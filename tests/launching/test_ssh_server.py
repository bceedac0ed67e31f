"""Against the real sshd: detached, cut off and brought back, runs end as if nothing had happened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.launching.ssh_server import Server, missing
from tests.runs_compared import assert_same_run, train

pytestmark = [
    pytest.mark.optional,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(missing()), reason=f"not installed here: {', '.join(missing())}"),
]
ROOT = Path(__file__).parents[2]
WORDS = ("algorithm.epochs=4", "evaluation.episodes=2", "evaluation.every_steps=5000", "training.total_steps=40000")
LONG_S = 900.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    server = Server(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def launch(server: Server, tmp_path: Path, home: Path) -> Callable[..., str]:
    """`etude launch ssh` to this machine, with a folder of its own for the other side."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": str(home)}
    (tmp_path / "work").mkdir()

    def run(*words: str, code: int = 0, options: tuple[str, ...] = ()) -> str:
        if words[0] == "train":
            there = tmp_path / "there"
            setup = f"export PYTHONPATH={ROOT / 'src'} OMP_NUM_THREADS=1 XDG_DATA_HOME={tmp_path / 'theirs'}"
            options = ("--ssh-config", str(server.config), "--remote", str(there), "--setup", setup, *options)
            python = () if "--python" in options else ("--python", sys.executable)
            words = ("ssh", "box", "--job-name", "it", *python, *options, *words)
        command = [sys.executable, "-m", "etude", "launch", *words]
        done = subprocess.run(
            command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False, timeout=LONG_S
        )
        assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.25)


def _steps(runs: Path) -> list[int]:
    """How far each run has come, by its last row."""
    found = [re.findall(r'"env_steps":(\d+)', path.read_text()) for path in runs.glob("2*/metrics.jsonl")]
    return [int(rows[-1]) if rows else 0 for rows in found]


def _states(said: str) -> list[str]:
    return re.findall(r"^ +\d+  (\w+)", said, re.MULTILINE)


def test_a_lost_connection_and_a_cancelled_launch_cost_nothing(
    server: Server, launch: Callable[..., str], tmp_path: Path
) -> None:
    work, there = tmp_path / "work", tmp_path / "there"
    (work / "mine.yaml").write_text("environment: {id: CartPole-v1}\nalgorithm: ppo\n")
    (work / ".env").write_text("SECRET=1\n")
    words = ("train", "--config", "mine.yaml", *WORDS, "--seed", "1,2", "--group", "g")
    assert "launched it: 2 tasks (" in launch(*words)
    _wait("the first steps", lambda: min(_steps(there / "runs"), default=0) > 1000 and len(_steps(there / "runs")) == 2)
    server.stop()
    before = min(_steps(there / "runs"))
    _wait("steps without a connection", lambda: min(_steps(there / "runs")) > before + 1000)
    assert "failed with exit code 255" in launch("status", code=1)
    server.start()
    assert _states(launch("status")) == ["running", "running"]
    assert "was launched already" in launch(*words, code=2)
    launch("sync")
    assert len(find_runs(work / "runs", group="g")) == 2, "living runs are brought here as they are"
    launch("cancel", "it")
    _wait("the end", lambda: _states(launch("status")) == ["interrupted", "interrupted"])
    launch(*words)
    _wait("the end", lambda: _states(launch("status")) == ["finished", "finished"])
    assert "goes on with run" in launch("logs", "--task", "1")
    launch("sync")
    assert len(find_runs(there / "runs")) == 2
    assert not (there / "code" / ".env").exists()
    for run in find_runs(work / "runs", group="g"):
        alone = train("CartPole-v1:ppo", tmp_path / "alone", *WORDS, f"experiment.seed={run.seed}", "experiment.group=g")
        assert_same_run(Run(run.path), alone)
    assert sorted(path.name for path in (work / "runs" / ".launch" / "it" / "logs").iterdir()) == ["0.log", "1.log", "all.log"]


def test_tar_does_what_rsync_does_and_hostile_words_arrive(launch: Callable[..., str], tmp_path: Path) -> None:
    work, there = tmp_path / "work", tmp_path / "there"
    own = "from etude.orchestration.callbacks import Callback\nclass Noting(Callback):\n    pass\n"
    (work / "it's mine $(touch gone)").mkdir()
    (work / "it's mine $(touch gone)" / "notes.txt").write_text("x")
    (work / "own.py").write_text(own)
    name = 'it\'s $(touch gone) `touch gone`\n; touch gone "x"'
    small = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=1")
    words = ("train", "CartPole-v1:ppo", *small, "training.callbacks=[{type: own.Noting}]", "--name", name, "--seed", "1-3")
    launch(*words, options=("--copy", "tar", "--at-once", "1"))
    assert (there / "code" / "it's mine $(touch gone)" / "notes.txt").read_text() == "x"
    launch("sync")
    _wait("the end", lambda: set(_states(launch("status"))) == {"finished"})
    launch("sync")
    runs = find_runs(work / "runs")
    assert [run.status for run in runs] == ["finished"] * 3
    assert all("touch gone" in (run.name or "") for run in runs)
    assert not list(tmp_path.rglob("gone"))
    assert (runs[0].path / "checkpoints" / "last").exists()


def test_a_machine_without_etude_is_found_out_before_anything_is_detached(launch: Callable[..., str], tmp_path: Path) -> None:
    nothing = tmp_path / "python"
    nothing.write_text("#!/bin/sh\necho no module named etude >&2\nexit 1\n")
    nothing.chmod(0o755)
    said = launch("train", "CartPole-v1:ppo", "--seed", "1", code=1, options=("--python", str(nothing)))
    assert "no module named etude" in said
    assert not (tmp_path / "there" / "pid").exists()

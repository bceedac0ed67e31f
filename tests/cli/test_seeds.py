"""`etude train --seed 1,2,3`: a group of runs and one result."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.errors import UserError
from etude.runs.index import find_runs
from etude.runs.run import Run
from etude.training import child_run
from etude.training.seed_group import parse_seeds
from tests.forked import ForkedProgram, fork_instead
from tests.runs_compared import assert_same_run, train

TINY = ("CartPole-v1:ppo", "training.total_steps=1000", "algorithm.epochs=1", "evaluation.episodes=2")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(("text", "seeds"), [("3", [3]), ("1,2,5", [1, 2, 5]), ("1-3", [1, 2, 3]), ("7, 1-2", [7, 1, 2])])
def test_seeds_are_a_number_a_list_or_a_range(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1,1", "1-3,2", "3-1", "1.5"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--seed"):
        parse_seeds(text)


def test_several_seeds_make_one_group_and_one_result(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert etude(["train", *TINY, "--seed", "1,2", "--group", "two"]) == 0
    shown = capsys.readouterr()
    runs = find_runs(tmp_path / "runs", group="two")
    assert sorted((run.seed, run.status, run.env_steps) for run in runs) == [(1, "finished", 1000), (2, "finished", 1000)]
    assert len({run.setup_hash for run in runs}) == 1
    mean = sum(run.metrics["eval/return_mean"] for run in runs) / 2
    assert shown.out.startswith(f"eval/return_mean over 2 of 2 seeds: mean {mean:.4g}")
    assert "95% CI [" in shown.out
    assert "etude runs compare --group two" in shown.err
    # Each is the run that its seed alone would have been.
    alone = train(TINY[0], tmp_path / "alone", *TINY[1:], "experiment.seed=2", "experiment.group=two")
    assert_same_run(alone, Run(next(run.path for run in runs if run.seed == 2)))


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are forks of this process, where nothing else depends on how they came to be."""
    fork_instead(child_run, monkeypatch)


@pytest.mark.usefixtures("forked")
def test_a_seed_that_fails_is_named_and_the_others_are_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("picky.py").write_text(
        "from etude.orchestration.callbacks import Callback\n"
        "class Picky(Callback):\n"
        "    def on_row(self, progress, row):\n"
        "        if '-s2' in progress.run_dir.name: raise RuntimeError('seed two again')\n"
    )
    words = (*TINY, "training.callbacks=[{type: picky.Picky}]")
    assert etude(["train", *words, "--seed", "1,2", "--group", "g"]) == 1
    shown = capsys.readouterr().err
    assert "seed 2:" in shown
    assert "seed two again" in shown
    assert sorted((run.seed, run.status) for run in find_runs(tmp_path / "runs")) == [(1, "finished"), (2, "failed")]


@pytest.mark.usefixtures("forked")
def test_a_wrong_request_is_one_line_and_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert etude(["train", "CartPole-v1:ppo", "algorithm.gama=1", "--seed", "1,2"]) == 2
    assert "algorithm.gama" in capsys.readouterr().err
    assert etude(["train", *TINY, "experiment.init_from=nowhere", "--seed", "1,2"]) == 2
    assert "run 'nowhere'" in capsys.readouterr().err
    assert etude(["train", *TINY, "--seed", "1,2", "--parallel", "0"]) == 2
    assert not list((tmp_path / "runs").glob("2*"))


# Waits at its first row until a signal has come.
PATIENT = """
import os, signal, time
from pathlib import Path
from etude.orchestration.callbacks import Callback

class Patient(Callback):
    def on_row(self, progress, row):
        if Path("go").exists():
            return
        heard, before = [], signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *came: heard.append(came) or before(*came))
        Path(f"waits-{os.getpid()}").touch()
        while not heard:
            time.sleep(0.01)
"""


@pytest.mark.usefixtures("forked")
def test_an_interrupted_group_goes_on_with_auto_resume(tmp_path: Path) -> None:
    Path("patient.py").write_text(PATIENT)
    words = [*TINY, "training.callbacks=[{type: patient.Patient}]", "--seed", "1,2", "--parallel", "2", "--auto-resume"]
    child = ForkedProgram([sys.executable, "-m", "etude", "train", *words], stderr=subprocess.DEVNULL)
    while len(list(tmp_path.glob("waits-*"))) < 2:
        assert child.poll() is None
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(timeout=120) == 130
    root = tmp_path / "runs"
    stopped = find_runs(root)
    assert [run.status for run in stopped] == ["interrupted"] * 2
    Path("go").touch()
    assert etude(["train", *words]) == 0
    assert [(run.id, run.status) for run in find_runs(root)] == [(run.id, "finished") for run in stopped]


class GonePipe(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.usefixtures("forked")
def test_a_group_trains_on_when_its_pipe_closes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Defect 14: `| head -1` ended the seeds that were still to come, without a word."""
    monkeypatch.setattr(sys, "stdout", GonePipe())
    monkeypatch.setattr(sys, "stderr", GonePipe())
    words = ("CartPole-v1:random", "training.total_steps=64", "evaluation.every_steps=0")
    assert etude(["train", *words, "--seed", "1,2", "--parallel", "1", "--group", "two"]) == 0
    assert [run.status for run in find_runs(tmp_path / "runs", group="two")] == ["finished", "finished"]

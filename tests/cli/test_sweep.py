"""`etude sweep` and `etude tune` as a user meets them: runs in groups, killed and gone on with, words, lists, reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.runs.index import find_runs
from etude.runs.run import Run
from etude.training import child_run
from tests.forked import ForkedProgram, fork_instead
from tests.runs_compared import assert_same_run, train

TINY = ["training.total_steps=768", "algorithm.epochs=1", "evaluation.episodes=2", "evaluation.every_steps=256"]
GRID = f"""
base: CartPole-v1:ppo
sweep:
  algorithm.lr: [1e-3, 1e-4]
  algorithm.gamma: [0.9, 0.99]
words: [{", ".join(TINY)}]
parallel: 2
"""
# Waits at its first row until it may go.
PATIENT = """
import os, time
from pathlib import Path
from etude.orchestration.callbacks import Callback

class Patient(Callback):
    def on_row(self, progress, row):
        Path(f"waits-{os.getpid()}").touch()
        while not Path("go").exists():
            time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    fork_instead(child_run, monkeypatch)
    Path("grid.yaml").write_text(GRID)


def events(name: str = "grid") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(f"runs/sweeps/{name}/journal.jsonl").read_text().splitlines()]


def test_a_grid_is_groups_of_ordinary_runs_a_report_and_configs(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["sweep", "grid.yaml"]) == 0
    shown = capsys.readouterr()
    assert "grid: 4 complete" in shown.out
    runs = {run.group: run for run in find_runs("runs")}
    assert sorted(runs) == [f"grid/000{number}" for number in range(4)]
    assert [runs[f"grid/000{n}"].config["algorithm.gamma"] for n in range(4)] == [0.9, 0.99, 0.9, 0.99]
    alone = train(
        "CartPole-v1:ppo", Path("alone"), *TINY, "algorithm.lr=1e-4", "algorithm.gamma=0.9", "experiment.group=grid/0002"
    )
    assert_same_run(alone, Run(runs["grid/0002"].path))
    # Again: there is nothing left to do.
    assert etude(["sweep", "grid.yaml", "-q"]) == 0
    assert len(find_runs("runs")) == 4
    capsys.readouterr()
    assert etude(["sweep", "report", "grid", "--top", "2", "--threshold", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "grid: grid, 4 complete"
    assert "seconds to 1" in table[1]
    page = Path("runs/sweeps/grid/report/report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "http" not in page
    assert etude(["train", "--config", "runs/sweeps/grid/report/best/1.yaml", "-q", "--name", "again"]) == 0
    best = next(event for event in events() if event.get("objective") and event["trial"] == int(table[2].split()[1]))
    assert find_runs("runs", name="again*")[0].metrics["eval/return_mean"] == best["objective"][0]  # type: ignore[index] # a list
    assert etude(["runs", "reach", "--group", "grid/*", "--threshold", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])) == 4
    assert etude(["sweep", "list"]) == 0
    assert "grid  grid · 4 trials (4 complete)" in capsys.readouterr().out


def test_words_win_over_the_sweep_and_a_dry_run_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["sweep", "grid.yaml", "--dry"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 trials: grid over algorithm.lr, algorithm.gamma"
    assert etude(["sweep", "grid.yaml", "algorithm.learning_rate=5e-4", "training.total_steps=1e3", "--dry"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["0000  gamma=0.9", "0001  gamma=0.99", "2 trials: grid over algorithm.gamma"]
    assert etude(["sweep", "--config", "grid.yaml", "algorithm.learning_rate=5e-4", "--dry"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["sweep", "gird.yaml"], "gird.yaml: there is no such file; did you mean 'grid.yaml'?"),
        (["sweep", "grid.yaml", "algorithm.gama=1"], "algorithm.gama: unknown key; did you mean 'gamma'?"),
        (["sweep", "grid.yaml", "--n-trials", "0"], "--n-trials 0: must be at least 1"),
        (["sweep", "grid.yaml", "--timeout", "soon"], "--timeout soon: a time above 0, such as 90, 30m or 2h"),
        (["sweep", "grid.yaml", "--gpus", "2"], "--gpus 2: this machine has 0"),
        (["sweep", "grid.yaml", "--gpus", "2", "--dry"], "--gpus 2: this machine has 0"),
        (["sweep", "grid.yaml", "algorithm.epochs=0", "--dry"], "algorithm.epochs=0: must be at least 1"),
        (["sweep", "typo.yaml"], "objective.metric=eval/retrun_mean: evaluations measure eval/return_mean, "),
        (["sweep", "typo.yaml", "--dry"], "did you mean 'eval/return_mean'?"),
        (
            ["sweep", "grid.yaml", "evaluation.every_steps=0"],
            "eval/return_mean: evaluations are off",
        ),
        (["sweep"], "etude sweep: name the sweep's file"),
        (["sweep", "baseless.yaml"], "base: a sweep says what every trial begins as, such as base: CartPole-v1:ppo"),
        (["sweep", "grid.yaml", "--config", "grid.yaml"], "grid.yaml and --config grid.yaml: one file, please"),
        (["sweep", "resume", "grid"], "there is no runs directory"),
        (["tune", "Cartpole-v1:ppo"], "unknown environment 'Cartpole-v1'; did you mean 'CartPole-v1'?"),
        (["tune", "Cartpole-v1:ppo", "--dry"], "unknown environment 'Cartpole-v1'; did you mean 'CartPole-v1'?"),
        (["tune", "CartPole-v1:random"], "random has no search space of its own"),
        (["tune", "CartPole-v1:ppo", "--trials", "0"], "--trials 0: must be at least 1"),
    ],
)
def test_slips_are_one_line_and_leave_nothing(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("typo.yaml").write_text(f"objective: eval/retrun_mean\n{GRID}")
    Path("baseless.yaml").write_text("sweep: {algorithm.gamma: [0.9, 0.99]}")
    assert etude(words) == 2
    said = capsys.readouterr()
    assert problem in said.err
    assert not said.out
    assert not Path("runs").exists()
    Path("runs").mkdir()
    assert etude(words) == 2
    assert Path("runs").exists(), "a folder that was there before"


def test_a_sweep_of_the_same_name_that_is_another_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["sweep", "grid.yaml", "--n-trials", "1", "-q"]) == 0
    Path("grid.yaml").write_text(GRID.replace("0.99]", "0.95]"))
    for words in ([], ["--dry"]):
        assert etude(["sweep", "grid.yaml", *words]) == 2
        said = capsys.readouterr().err
        assert "begun with other settings (sweep)" in said
        assert "etude sweep resume grid" in said


def test_killed_sweeps_and_trials_go_on_and_end_as_if_nothing_had_been(tmp_path: Path) -> None:
    Path("patient.py").write_text(PATIENT)
    callback = "training.callbacks=[{type: patient.Patient}]"
    command = [sys.executable, "-m", "etude", "sweep", "grid.yaml", callback, "--n-trials", "2"]
    child = ForkedProgram(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _wait(lambda: len(list(tmp_path.glob("waits-*"))) == 2, child)
    first = sorted(path.name for path in tmp_path.glob("runs/2*"))
    # One trial is killed, and goes on in a process of its own; then the sweep itself.
    pid = int(next(tmp_path.glob("waits-*")).name.removeprefix("waits-"))
    os.kill(pid, signal.SIGKILL)
    _wait(lambda: len(list(tmp_path.glob("waits-*"))) == 3, child)
    child.kill()
    child.wait()
    Path("go").touch()
    _wait(lambda: not any(run.status == "running" for run in find_runs("runs")))
    assert not any(event["event"] == "ended" for event in events())
    assert sorted(path.name for path in tmp_path.glob("runs/2*")) == first
    assert etude(["sweep", "resume", "grid", "-q"]) == 0
    killed = {run.group: run for run in find_runs("runs")}
    assert sorted(run.id for run in find_runs("runs")) == first
    assert etude(["sweep", "grid.yaml", callback, "--n-trials", "2", "--runs", "whole", "-q"]) == 0
    for run in find_runs("whole"):
        assert_same_run(Run(killed[str(run.group)].path), Run(run.path))


def _wait(until: object, child: ForkedProgram | None = None) -> None:
    deadline = time.monotonic() + 120
    while not until():  # type: ignore[operator] # a function
        assert time.monotonic() < deadline
        assert child is None or child.poll() is None
        time.sleep(0.05)


def test_a_trial_that_cannot_start_is_recorded_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("grid.yaml").write_text(GRID.replace("algorithm.gamma: [0.9, 0.99]", "algorithm.batch_size: [256, 100]"))
    assert etude(["sweep", "grid.yaml"]) == 0
    shown = capsys.readouterr()
    assert "2 complete" in shown.out
    assert "2 failed" in shown.out
    assert "algorithm.batch_size=100" in shown.out
    ended = [event for event in events() if event["event"] == "ended" and event["state"] == "failed"]
    assert len(ended) == 2
    assert "algorithm.batch_size=100" in str(ended[0]["error"])


def test_a_paused_run_goes_on_as_if_it_never_paused(tmp_path: Path) -> None:
    words = ["CartPole-v1:ppo", *TINY, "-q"]
    assert etude(["train", *words, "--pause-at", "300", "--runs", "paused"]) == 130
    run = find_runs("paused")[0]
    assert (run.status, run.env_steps) == ("interrupted", 512)
    assert etude(["resume", run.id, "--runs", "paused", "-q"]) == 0
    assert etude(["train", *words, "--runs", "whole"]) == 0
    assert_same_run(Run(run.path), Run(find_runs("whole")[0].path))


def test_tune_ends_in_a_preset_that_trains(capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.yaml").write_text(
        "algorithm.learning_rate: {low: 1e-4, high: 1e-2, log: true}\n_width: [8, 16]\n"
        "network.actor.hidden_dims: {sample_from: '[_width, _width]'}\n"
    )
    words = ["CartPole-v1:ppo", *TINY, "--space", "space.yaml", "--trials", "4", "--seed", "1-2", "--finalists", "1", "-q"]
    assert etude(["tune", *words, "--name", "t"]) == 0
    out = capsys.readouterr().out
    assert "score against seconds:" in out
    assert "(2 seeds)" in out
    groups = sorted((str(run.group), run.seed, run.status) for run in find_runs("runs"))
    assert ("t/0000", 1, "finished") in groups
    assert ("t/0000", 2, "finished") in groups
    assert sum(seed == 1 for _, seed, _ in groups) == 4
    assert etude(["train", "--config", "runs/sweeps/t/report/preset.yaml", "-q"]) == 0

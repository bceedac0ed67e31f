"""`etude launch slurm` with stubs for SLURM's commands: exactly what is written, exactly what is called."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from etude.cli import run as etude
from tests.launching.conftest import HOSTILE, PYTHON, Stubs, assert_no_secret, dry_files

TRAIN = ("train", "CartPole-v1:ppo", "training.total_steps=600")


def _script(folder: Path) -> str:
    (script,) = folder.glob("runs/.launch/*/job.sh")
    return script.read_text()


def test_dry_prints_what_is_then_used_and_does_nothing(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("sbatch", "17\n")
    words = ["launch", "slurm", "--cpus", "2", "--gpus", "1", "--memory", "8G", "--time", "1d2h", "--partition", "gpu",
             "--account", "lab", "--sbatch", "--constraint=a100", "--setup", "module load cuda", "--at-once", "2"]  # fmt: skip
    command = [*TRAIN, "--seed", "1-3"]
    assert etude([*words, "--dry", *command]) == 0
    shown = capsys.readouterr().out
    assert not list(work.iterdir())
    assert stubs.calls("sbatch") == []
    assert etude([*words, *command]) == 0
    files = dry_files(shown)
    assert len(files) == 2
    for path, text in files.items():
        assert Path(path).read_text() == text
    (call,) = stubs.calls("sbatch")
    assert shlex.join(["sbatch", *call]) in shown
    (launch,) = (work / "runs" / ".launch").iterdir()
    assert call == ["--parsable", f"--chdir={work}", f"--output={launch}/logs/%a.log", f"{launch}/job.sh"]
    assert (launch / "logs").is_dir(), "SLURM makes no folder for the output"
    assert re.findall("^#SBATCH (.*)$", _script(work), re.MULTILINE) == [
        f"--job-name={launch.name}", "--array=0-2%2", "--requeue", "--open-mode=append", "--partition=gpu", "--account=lab",
        "--cpus-per-task=2", "--gres=gpu:1", "--mem=8192M", "--time=1-02:00:00", "--signal=B:USR1@120", "--constraint=a100",
    ]  # fmt: skip
    assert "\nmodule load cuda\n" in _script(work)
    assert_no_secret(work)


def _words_of(script: str, task: int, folder: Path) -> list[str]:
    """Run the script with a training that only prints its words."""
    printing = folder / "printing"
    printing.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    printing.chmod(0o755)
    copy = folder / "copy.sh"
    copy.write_text(script.replace(f"set -- {PYTHON} -m etude", f"set -- {shlex.quote(str(printing))}"))
    environment = {"SLURM_ARRAY_TASK_ID": str(task), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", str(copy)], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_words_arrive_as_they_are(name: str, stubs: Stubs, work: Path) -> None:
    stubs.add("sbatch", "1\n")
    assert etude(["launch", "slurm", "--unchecked", *TRAIN, f"--name={name}", "--seed", "2"]) == 0
    script = _script(work)
    assert _words_of(script, 0, work) == [*TRAIN, f"--name={name}", "--auto-resume", "--seed=2", f"--runs={work}/runs"]
    assert not list(work.rglob("gone"))
    # SLURM reads directives up to the first line that is no comment: none of the user's is among them.
    head = script[: script.index("\n\n")]
    assert all(line.startswith("#") for line in head.splitlines())
    assert head.count("--array=") == 1


@pytest.mark.parametrize("folder", ["two words", "it's $(touch gone)", "%j %A", "--dashes"])
def test_hostile_folders_are_folders(folder: str, stubs: Stubs, work: Path) -> None:
    stubs.add("sbatch", "1\n")
    assert etude(["launch", "slurm", "--unchecked", f"--runs={folder}", *TRAIN]) == 0
    (launch,) = (work / folder / ".launch").iterdir()
    (call,) = stubs.calls("sbatch")
    assert call[2] == f"--output={str(launch).replace('%', '%%')}/logs/%a.log"
    assert _words_of((launch / "job.sh").read_text(), 0, work)[-1] == f"--runs={work / folder}"
    assert (launch / "exit" / "0").read_text() == "0\n"
    assert not list(work.rglob("gone"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--partition", "a b"], "--partition 'a b': letters"),
        (["--account", "x\n#SBATCH --array=1"], "--account"),
        (["--partition=-x"], "--partition '-x'"),
        (["--sbatch", "a\nb"], "--sbatch: one line each"),
        (["--setup", "a\nb"], "--setup: one line each"),
        (["--memory", "8"], "--memory 8: a number with its unit"),
        (["--memory", "0G"], "--memory 0G"),
        (["--time", "90"], "--time 90: such as 4h"),
        (["--time", "60s"], "at least 4 minutes"),
        (["--cpus", "0"], "--cpus 0: must be at least 1"),
        (["--gpus", "-1"], "--gpus -1: must be at least 0"),
        (["--at-once", "0"], "--at-once 0"),
        (["--job-name", "a b"], "--job-name 'a b': letters"),
        (["--job-name", "../x"], "--job-name"),
        (["--runs", "back\\slash"], "backslash"),
        (["--each", "algorithm.gamma=0.9"], "--each algorithm.gamma=0.9: a setting and several values"),
        (["--each", "training.total_steps=1,2"], "the command sets it too"),
    ],
)
def test_slips_are_one_line(words: list[str], said: str, stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("sbatch", "1\n")
    assert etude(["launch", "slurm", *words, "--unchecked", *TRAIN]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert stubs.calls("sbatch") == []
    assert not list(work.iterdir())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "nothing to launch: after the launcher's options comes train or resume"),
        (["evaluate", "@last"], "'evaluate' can't be launched"),
        (["train", "CartPole-v1:ppo", "--sede", "1"], "see `etude train --help`"),
        (["train", "CartPole-v1:ppo", "algorithm.gama=1"], "did you mean"),
        (["train", "Cartpole-v1:ppo"], "did you mean 'CartPole-v1'?"),
        (["sweep", "grid.yaml"], "algorithm.gama: unknown key; did you mean 'gamma'?"),
        (["train", "CartPole-v1:ppo", "--debug"], "--debug is for a terminal"),
        (["train", "CartPole-v1:ppo", "--seed", "1-2", "--parallel", "2"], "--parallel is for"),
        (["train", "CartPole-v1:ppo", "--seed", "x"], "--seed x"),
        (["resume", "@last"], "no run"),
    ],
)
def test_what_would_fail_in_an_hour_fails_now(
    command: list[str], said: str, stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stubs.add("sbatch", "1\n")
    (work / "grid.yaml").write_text("{base: 'CartPole-v1:ppo', sweep: {algorithm.gama: [0.9, 0.99]}}")
    assert etude(["launch", "slurm", *command]) == 2
    assert said in capsys.readouterr().err
    assert stubs.calls("sbatch") == []


def test_a_sweep_may_ask_for_more_than_this_machine_has(stubs: Stubs, work: Path) -> None:
    stubs.add("sbatch", "1\n")
    (work / "grid.yaml").write_text("{base: 'CartPole-v1:ppo', sweep: {algorithm.gamma: [0.9, 0.99]}}")
    assert etude(["launch", "slurm", "sweep", "grid.yaml", "--cpus", "1000", "--gpus", "64"]) == 0


def test_every_combination_is_a_task_of_one_group(stubs: Stubs, work: Path) -> None:
    stubs.add("sbatch", "1\n")
    each = ["--each", "algorithm.gamma=0.9,0.99", "--each", "network.actor.hidden_dims=[8,8],[16]"]
    assert etude(["launch", "slurm", *each, "--job-name", "grid", *TRAIN, "--seed", "1,2"]) == 0
    record = json.loads((work / "runs/.launch/grid/launch.json").read_text())
    assert len(record["tasks"]) == 8
    assert record["tasks"][5] == [
        *TRAIN, "--auto-resume", "algorithm.gamma=0.99", "network.actor.hidden_dims=[8,8]", "--seed=2", "--group=grid",
    ]  # fmt: skip


def test_the_same_words_are_the_same_launch(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("sbatch", "17\n")
    stubs.add("squeue", "17_0|RUNNING|None\n17_1|PENDING|Resources\n")
    launch = ["launch", "slurm", "--unchecked", *TRAIN, "--seed", "1,2"]
    assert etude(launch) == 0
    assert etude(launch) == 2
    assert "2 of its tasks wait or run" in capsys.readouterr().err
    assert stubs.calls("squeue") == [["--noheader", "--array", "--states=all", "--format=%i|%T|%r", "--jobs=17"]]
    # SLURM has forgotten them: it goes on with what is unfinished.
    stubs.add("squeue", errors="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert etude(launch) == 0
    assert len(stubs.calls("sbatch")) == 2
    stubs.add("squeue", errors="Unable to contact slurm controller\n", code=1)
    assert etude(launch) == 1
    assert "can't be found out" in capsys.readouterr().err
    assert etude(["launch", "slurm", "--unchecked", "--job-name", "mine", *TRAIN]) == 0
    assert etude(["launch", "slurm", "--unchecked", "--job-name", "mine", *TRAIN, "--seed", "9"]) == 2
    assert "other tasks were launched under this name" in capsys.readouterr().err


def test_status_cancel_and_logs(stubs: Stubs, work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stubs.add("sbatch", "17;cluster\n")
    stubs.add("squeue", "17_0|RUNNING|None\n17_1|PENDING|BeginTime\n17_5|COMPLETED|None\n")
    stubs.add("scancel")
    assert etude(["launch", "slurm", "--unchecked", "--job-name", "six", *TRAIN, "--seed", "1-6"]) == 0
    folder = work / "runs/.launch/six"
    for number, code in ((2, "0"), (3, "130"), (4, "1"), (5, "0")):
        (folder / "exit" / str(number)).write_text(f"{code}\n")
    capfd.readouterr()
    assert etude(["launch", "status", "--json"]) == 0
    states = [task["state"] for task in json.loads(capfd.readouterr().out)["tasks"]]
    assert states == ["running", "waiting (BeginTime)", "finished", "interrupted", "failed (1)", "finished"]
    assert etude(["launch", "status", "si"]) == 0
    assert "  1  waiting (BeginTime)" in capfd.readouterr().out
    assert etude(["launch", "logs", "six"]) == 2
    assert "no task has begun yet" in capfd.readouterr().err
    (folder / "logs" / "0.log").write_text("0 of 600 steps\n")
    assert etude(["launch", "logs", "six"]) == 0
    assert "0 of 600 steps" in capfd.readouterr().out
    assert etude(["launch", "logs", "six", "--task", "6"]) == 2
    assert etude(["launch", "cancel", "six", "--dry"]) == 0
    assert stubs.calls("scancel") == []
    assert "scancel 17" in capfd.readouterr().out
    assert etude(["launch", "cancel", "six"]) == 0
    assert stubs.calls("scancel") == [["17"]]
    assert etude(["launch", "sync", "six"]) == 0
    assert etude(["launch", "status", "seven"]) == 2
    assert "seven: no launch of this name" in capfd.readouterr().err
    assert etude(["launch", "cancel", "six", "--runs", "elsewhere"]) == 2
    assert "nothing was launched from" in capfd.readouterr().err


def test_a_run_to_resume_is_named_for_good(stubs: Stubs, work: Path) -> None:
    stubs.add("sbatch", "1\n")
    assert etude([*TRAIN, "algorithm.epochs=1", "evaluation.episodes=1", "-q"]) == 0
    (run,) = [path for path in (work / "runs").iterdir() if path.name[0] != "@" and path.name[0] != "."]
    assert etude(["launch", "slurm", "resume", "@last", "training.total_steps=900"]) == 0
    assert f"resume {run} training.total_steps=900" in _script(work)


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_tool_is_one_line_with_the_way_out(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["launch", "slurm", "--unchecked", *TRAIN]) == 2
    assert "`sbatch` is not installed here: run this where SLURM's commands are" in capsys.readouterr().err
    assert not list(work.iterdir()), "nothing is left behind"
    assert etude(["launch", "slurm", "--unchecked", "--dry", *TRAIN]) == 0, "looking needs no tool"


def test_what_sbatch_complains_of_is_said(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("sbatch", code=1, errors="sbatch: error: invalid partition specified: nope\n")
    assert etude(["launch", "slurm", "--unchecked", "--partition", "nope", *TRAIN]) == 1
    assert "`sbatch` failed with exit code 1: sbatch: error: invalid partition specified: nope" in capsys.readouterr().err
    assert etude(["launch", "status"]) == 2
    assert "was never submitted" in capsys.readouterr().err

"""`--processes`: one command, several ranks, one run; whatever ends one ends all, with a word why."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from etude import cli
from etude.runs.run import Run
from etude.training import ranks
from tests.forked import ForkedProgram, fork_instead
from tools.attack.ranks import ranks_of

SMALL = ("environment.num_envs=2", "algorithm.rollout_steps=8", "algorithm.batch_size=1.0", "algorithm.epochs=1",
         "evaluation.every_steps=0", "experiment.device=cpu")  # fmt: skip
PATIENCE = 120


class Broken(CartPoleEnv):
    """Fails in its third step, on the second rank alone."""

    def step(self, action: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        if os.environ.get("RANK") == "1" and self.steps == 3:
            raise ZeroDivisionError("on this rank alone")
        return super().step(action)


gymnasium.register("ranks/Broken-v0", entry_point=lambda **options: Broken(**options))


@pytest.fixture(autouse=True)
def ranks_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_instead(ranks, monkeypatch)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., ForkedProgram]:
    """Starts a command whose output goes to a file."""

    def started(*arguments: str) -> ForkedProgram:
        with (tmp_path / "said.txt").open("wb") as stream:
            return ForkedProgram(
                [sys.executable, "-m", "etude", *arguments], stdout=stream, stderr=stream, start_new_session=True
            )

    return started


def wait_for_rows(root: Path, command: ForkedProgram) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(path.stat().st_size for path in root.glob("2*/metrics.jsonl")):
        assert command.poll() is None, "it ended before its first row"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_of_two_processes_is_resumed_by_as_many_and_by_no_other_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--runs", str(tmp_path), "-q"]
    assert cli.run(["train", "CartPole-v1:ppo", "training.total_steps=96", "--processes", "2", *words]) == 0
    (run,) = Run.list(tmp_path)
    last = run.checkpoints().find("last")
    assert last.counters["env_steps"] == 96
    assert {"policy", "shared", "rank/0", "rank/1"} == set(last.parts)
    assert cli.run(["resume", str(run.path), "training.total_steps=192", "-q"]) == 0
    assert run.checkpoints().find("last").counters["env_steps"] == 192
    capsys.readouterr()
    assert cli.run(["resume", str(run.path), "training.total_steps=288", "--processes", "3"]) == 2
    said = capsys.readouterr().err
    assert "this run is trained by 2 processes, and can't go on with 3" in said
    assert f"--init-from {run.path} --processes 3` begins a new one with its networks" in said


def test_a_rank_that_is_killed_ends_all_with_a_line(tmp_path: Path, start: Callable[..., ForkedProgram]) -> None:
    words = ("training.total_steps=10000000", "checkpoint.every_steps=32", "logging.every_steps=32")
    command = start("train", "CartPole-v1:ppo", *SMALL, *words, "--processes=2", f"--runs={tmp_path}", "-q")
    wait_for_rows(tmp_path, command)
    members = ranks_of(command.pid)
    os.kill(members[1], signal.SIGKILL)
    assert command.wait(PATIENCE) == 1
    said = (tmp_path / "said.txt").read_text()
    assert "etude: rank 1 was killed by SIGKILL (someone killed it, or the system did for its memory)\n" in said
    assert "goes on from" in said
    assert "Traceback" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in members.values())
    (run,) = Run.list(tmp_path)
    assert run.status == "failed"
    run.checkpoints().newest_whole().verify()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_parent_or_as_of_a_scheduler_to_all_saves_once_and_stops_all(
    number: signal.Signals, tmp_path: Path, start: Callable[..., ForkedProgram]
) -> None:
    words = ("training.total_steps=10000000", "checkpoint.every_steps=0", "logging.every_steps=32")
    command = start("train", "CartPole-v1:ppo", *SMALL, *words, "--processes=2", f"--runs={tmp_path}", "-q")
    wait_for_rows(tmp_path, command)
    members = ranks_of(command.pid)
    for pid in (command.pid, *(members.values() if number == signal.SIGTERM else ())):
        os.kill(pid, number)
    assert command.wait(PATIENCE) == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in members.values())
    (run,) = Run.list(tmp_path)
    assert run.status == "interrupted"
    assert [saved.counters["env_steps"] > 0 for saved in run.checkpoints().list()] == [False, True]


def test_an_exception_on_one_rank_ends_all_with_its_traceback(tmp_path: Path, start: Callable[..., ForkedProgram]) -> None:
    words = ("training.total_steps=960", "environment.backend=gymnasium")
    command = start(
        "train", "tests.cli.test_processes:ranks/Broken-v0:ppo", *SMALL, *words, "--processes=2", f"--runs={tmp_path}", "-q"
    )
    assert command.wait(PATIENCE) == 1
    said = (tmp_path / "said.txt").read_text()
    assert "rank 1: " in said
    assert "ZeroDivisionError: on this rank alone" in said
    assert Run.list(tmp_path)[0].status == "failed"


@pytest.mark.parametrize(
    ("spec", "words", "said"),
    [
        ("FrozenLake-v1:q_learning", (), "algorithm.name=q_learning: can't be trained by several processes; use one"),
        ("CartPole-v1:ppo", ("experiment.compile=on",), "experiment.compile=on: not with experiment.processes=2"),
        ("CartPole-v1:ppo", ("--debug",), "--debug and --processes 2: choose one"),
        ("CartPole-v1:ppo", ("experiment.processes=3",), "--processes and experiment.processes=3: choose one"),
        ("CartPole-v1:ppo", ("experiment.device=cuda:0,cuda:1",), "this machine has 0 CUDA devices"),
    ],
)
def test_what_several_processes_can_not_do_is_said_before_they_start(
    spec: str, words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "CUDA" in said and sys.modules["torch"].cuda.device_count():
        pytest.skip("there are devices here")
    assert cli.run(["train", spec, *words, "--processes", "2", "--runs", str(tmp_path / "runs")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_torchruns_world_is_found_and_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["train", "CartPole-v1:ppo", "experiment.processes=3", *SMALL, "--runs", str(tmp_path)]) == 2
    assert (
        "experiment.processes=3: this process is one of 2; start it with `etude train --processes 3`" in capsys.readouterr().err
    )
    assert cli.run(["train", "CartPole-v1:ppo", *SMALL, "--seed", "1,2", "--runs", str(tmp_path)]) == 2
    assert "--seed 1,2: torchrun trains one run" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "first")
    assert cli.run(["train", "CartPole-v1:ppo", *SMALL, "--runs", str(tmp_path)]) == 2
    assert "RANK=first" in capsys.readouterr().err

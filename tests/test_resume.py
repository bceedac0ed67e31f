"""A run that was stopped is the same run as one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.errors import CheckpointError, EtudeError, UserError
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.forked import ForkedProgram
from tests.runs_compared import (
    assert_resumes_again_and_again,
    assert_same_run,
    forge_settings,
    resume,
    rows,
    state,
    stopped_after,
    train,
)

CARTPOLE = ("CartPole-v1:ppo", "training.total_steps=3000", "algorithm.epochs=2", "evaluation.episodes=2")
PENDULUM = (
    "Pendulum-v1:ppo",
    "training.total_steps=3000",
    "algorithm.rollout_steps=64",
    "algorithm.epochs=2",
    "evaluation.episodes=2",
    "environment.normalize_observations=rolling",
    "environment.normalize_rewards=true",
)
FROZEN_LAKE = ("FrozenLake-v1:ppo", "training.total_steps=2000", "algorithm.rollout_steps=32", "algorithm.epochs=2")
OPTIONS = (
    *CARTPOLE,
    "algorithm.adaptive_kl=0.01",
    "algorithm.target_kl=0.02",
    "algorithm.clip_value_loss=0.2",
    "algorithm.optimizer=sgd",
    "environment.normalize_observations=static",
    "evaluation.mode=both",
)


def _remembering(actor: str, critic: str) -> tuple[str, ...]:
    """Rollouts of 24 steps end amid episodes, and episodes amid rollouts."""
    settings = ("training.total_steps=1200", "algorithm.rollout_steps=24", "algorithm.batch_size=96", "algorithm.epochs=2")
    networks = (f"network.actor={actor}", f"network.critic={critic}", "environment.normalize_observations=rolling")
    return ("CartPole-v1:ppo", *settings, *networks, "evaluation.episodes=2")


_GRU = "{type: gru, hidden_dims: [8], memory_size: 8, memory_layers: 2}"
_LSTM = "{type: lstm, hidden_dims: [8], memory_size: 8}"
_TRANSFORMER = "{type: transformer, window: 6, width: 8, heads: 2}"
MEMORY = {"gru": _remembering(_GRU, _GRU), "lstm": _remembering(_LSTM, "mlp"), "transformer": _remembering(_TRANSFORMER, _LSTM)}
CASES = {"cartpole": CARTPOLE, "pendulum": PENDULUM, "lake": FROZEN_LAKE, "options": OPTIONS, **MEMORY}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_resume_equals_uninterrupted(settings: tuple[str, ...], tmp_path: Path) -> None:
    assert_resumes_again_and_again(settings[0], tmp_path, *settings[1:], most=4)


def test_the_same_seed_twice_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    first, second, other = (train(CARTPOLE[0], tmp_path, *CARTPOLE[1:], f"experiment.seed={seed}") for seed in (7, 7, 8))
    assert_same_run(first, second)
    assert rows(first) != rows(other)


def test_saving_logging_and_evaluating_more_often_does_not_change_training(tmp_path: Path) -> None:
    plain = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:], "evaluation.every_steps=0", "checkpoint.every_steps=0")
    busy = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:], "evaluation.every_steps=300", "checkpoint.every_steps=300")
    one, other = state(plain)["shared"]["workflow"], state(busy)["shared"]["workflow"]
    assert all((one["actor"][key] == other["actor"][key]).all() for key in one["actor"])


def test_deterministic_mode_changes_nothing_on_the_cpu_and_is_in_force(tmp_path: Path) -> None:
    import torch

    run = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:], "experiment.deterministic=true")
    assert torch.are_deterministic_algorithms_enabled()
    assert_rows = rows(train(CARTPOLE[0], tmp_path, *CARTPOLE[1:]))
    assert rows(run) == assert_rows


def _start(root: Path, *words: str) -> ForkedProgram:
    command = [sys.executable, "-m", "etude", "train", "CartPole-v1:ppo", "--runs", str(root), "-q", "--no-compile", *words]
    return ForkedProgram(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(condition: object, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def _rows_logged(root: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in root.glob("2*/metrics.jsonl"))


def test_a_run_killed_with_sigkill_continues_from_its_last_save_to_the_same_end(tmp_path: Path) -> None:
    words = ("training.total_steps=6000", "algorithm.epochs=2", "checkpoint.every_steps=1000", "logging.every_steps=256")
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *words, "experiment.compile=off")
    process = _start(tmp_path / "cut", *words)
    _wait_for(lambda: _rows_logged(tmp_path / "cut") > 8)
    process.kill()
    process.wait()
    run = Run.resolve("@last", tmp_path / "cut")
    assert run.status == "crashed"
    logged = len(read_rows(run.metrics_path))
    assert resume(run).status == "finished"
    assert_same_run(whole, run)
    superseded = run.logs / "superseded.jsonl"
    kept = logged - (len(superseded.read_text().splitlines()) if superseded.exists() else 0)
    assert 0 < kept <= logged
    steps = [row["env_steps"] for row in read_rows(run.metrics_path)]
    assert steps == sorted(set(steps)), "one continuous stream: no step twice, none going back"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_before_the_budget_ends_and_exits_with_130(number: signal.Signals, tmp_path: Path) -> None:
    process = _start(tmp_path, "training.total_steps=1000000", "checkpoint.every_steps=0")
    _wait_for(lambda: _rows_logged(tmp_path) > 0)
    process.send_signal(number)
    assert process.wait(timeout=240) == 130
    run = Run.resolve("@last", tmp_path)
    assert run.status == "interrupted"
    assert 0 < run.checkpoints().newest_whole().counters["env_steps"] < 1_000_000


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_offered(tmp_path: Path) -> None:
    with stopped_after(8):
        run = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:])
    newest = run.checkpoints().newest_whole()
    victim = newest.path / "shared" / "tensors.safetensors"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"damaged.*the one before it is whole: --checkpoint \d+"):
        resume(run)
    before = run.checkpoints().list()[-2]
    assert resume(run, checkpoint=str(before.name.split("-")[0])).status == "finished"
    whole = train(CARTPOLE[0], tmp_path / "whole", *CARTPOLE[1:])
    assert rows(whole) == rows(run)


def test_a_missing_run_is_an_error_never_a_fresh_start(tmp_path: Path) -> None:
    tmp_path.joinpath("runs").mkdir()
    with pytest.raises(UserError, match="not found"):
        Run.resolve("20990101", tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_finished_run_says_how_to_train_on_and_a_longer_budget_continues_it(tmp_path: Path) -> None:
    run = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:])
    with pytest.raises(UserError, match=r"finished.*training.total_steps="):
        resume(run)
    resume(run, "training.total_steps=4000")
    assert run.summary["counters"]["env_steps"] == 4000
    assert "training.total_steps: 3000 → 4000" in (run.logs / "changes.jsonl").read_text()
    assert "total_steps: 4000" in run.resolved_path.read_text()


def test_a_longer_budget_from_the_middle_of_a_rollout_is_the_longer_run(tmp_path: Path) -> None:
    """The budget ends amid a rollout; raising it goes on with the other half, as if it had always been higher."""
    settings = ("algorithm.epochs=2", "algorithm.learning_rate=1e-3", "algorithm.clip_range=0.2", "evaluation.every_steps=0")
    cadence = ("logging.every_steps=256", "checkpoint.every_steps=0")
    short = train("CartPole-v1:ppo", tmp_path, *settings, *cadence, "training.total_steps=1000")
    resume(short, "training.total_steps=2048")
    long = train("CartPole-v1:ppo", tmp_path, *settings, *cadence, "training.total_steps=2048")
    one, other = state(short), state(long)
    assert one["shared"]["counters"] == other["shared"]["counters"]
    for key, value in one["shared"]["workflow"]["actor"].items():
        assert (value == other["shared"]["workflow"]["actor"][key]).all()


def test_another_algorithms_checkpoint_is_refused(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, "training.total_steps=300")
    other = train("CartPole-v1:random", tmp_path, "training.total_steps=300")
    os.rename(other.resolved_path, other.path / "old")
    forge_settings(other, run.resolved_path.read_text().replace("total_steps: 300", "total_steps: 600"))
    with pytest.raises(EtudeError, match=r"is of random.*says ppo"):
        resume(other)


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    with stopped_after(1):
        run = train(CARTPOLE[0], tmp_path, *CARTPOLE[1:])
    with run.lock(), pytest.raises(UserError, match=str(os.getpid())):
        resume(run)

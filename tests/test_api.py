"""Etude from Python: one object trains, stops, goes on, is measured and read."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import etude
from etude.errors import UserError
from tests.runs_compared import assert_same_run

SMALL = ("CartPole-v1:ppo", "training.total_steps=3000", "algorithm.epochs=1", "evaluation.episodes=2")


def test_a_loop_that_is_left_and_entered_again_gives_the_run_that_was_never_left(tmp_path: Path) -> None:
    whole = etude.start(*SMALL, runs=tmp_path / "whole")
    seen = [dict(row) for row in whole]
    assert whole.status == "finished"
    assert [row["env_steps"] for row in seen] == [row["env_steps"] for row in whole.rows]

    parted = etude.start(*SMALL, runs=tmp_path / "parted")
    for row in parted:
        if row["env_steps"] > 1000:
            break
    assert parted.status == "interrupted"
    assert parted.record["stop_reason"] == "stopped by the caller"
    for _ in parted:
        pass
    assert parted.status == "finished"
    assert_same_run(whole, parted)


def test_a_loop_left_at_the_last_row_is_a_finished_run(tmp_path: Path) -> None:
    run = etude.start(*SMALL, runs=tmp_path)
    for row in run:
        if row["env_steps"] >= 3000:
            break
    assert run.status == "finished"
    assert run.summary["last_evaluation"]["eval/episodes"] == 2


def test_another_thread_can_stop_a_run(tmp_path: Path) -> None:
    run = etude.start(*SMALL, "training.total_steps=10_000_000", runs=tmp_path)
    first = threading.Event()

    def stop_soon() -> None:
        first.wait(60)
        run.stop()

    thread = threading.Thread(target=stop_soon)
    thread.start()
    for _ in run:
        first.set()
    thread.join()
    assert run.status == "interrupted"
    assert run.checkpoints().newest_whole().counters["env_steps"] < 10_000_000


def test_an_error_in_the_loop_leaves_a_saved_run(tmp_path: Path) -> None:
    run = etude.start(*SMALL, runs=tmp_path)

    def loop() -> None:
        for _ in run:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert run.status == "interrupted"
    assert run.resume().status == "finished"


def test_train_resume_evaluate_and_read_metrics_without_the_command_line(tmp_path: Path) -> None:
    run = etude.train("CartPole-v1:ppo", "training.total_steps=1000", "algorithm.epochs=1", runs=tmp_path)
    assert run.status == "finished"
    with pytest.raises(UserError, match=r"is finished \(1,000 environment steps\)"):
        next(iter(run))
    assert etude.resume(run, "training.total_steps=1500").summary["counters"]["env_steps"] == 1504
    assert run.rows[-1]["env_steps"] == 1504
    steps, returns = run.metric("eval/return_mean")
    assert len(steps) == len(returns) > 1
    assert run.config.algorithm.epochs == 1
    again = etude.open_run("@last", runs=tmp_path)
    assert again.path == run.path
    assert (again.evaluate(5).returns == etude.evaluate("@last", episodes=5, runs=tmp_path).returns).all()
    policy, environment = again.policy(num_envs=3)
    assert policy.stochastic
    assert environment.num_envs == 3


def test_importing_etude_is_light() -> None:
    code = "import sys, etude; assert not {'torch', 'gymnasium', 'hydra'} & set(sys.modules); etude.make_environment"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_environments_are_made_by_name() -> None:
    environment = etude.make_environment("CartPole-v1", 4)
    observation, _ = environment.reset([1, 2, 3, 4])
    assert observation.shape == (4, 4)  # type: ignore[union-attr]


def test_runs_live_where_the_command_line_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 20: Python ignored ETUDE_RUNS."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_RUNS", str(tmp_path / "elsewhere"))
    run = etude.train("CartPole-v1:random", "training.total_steps=32", "evaluation.every_steps=0")
    assert run.path.parent == tmp_path / "elsewhere"
    assert etude.open_run("@last").id == run.id
    assert not (tmp_path / "runs").exists()


def test_an_interrupt_reaches_the_script_once_the_run_is_saved(tmp_path: Path) -> None:
    """Defect 20: Ctrl-C ended the training and the script went on as if it were finished."""
    run = etude.start(*SMALL, runs=tmp_path)

    def train() -> None:
        for _ in run:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            train()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (run.status, run.record["stop_reason"]) == ("interrupted", "SIGINT")
    assert run.resume().status == "finished"


def test_sigterm_reaches_the_script_once_the_run_is_saved(tmp_path: Path) -> None:
    """Defect 20: what a script does on SIGTERM, by default to end, it does after the run has saved itself."""
    run, seen = etude.start(*SMALL, runs=tmp_path), []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(run.status))
    try:
        for _ in run:
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["interrupted"]

"""The run that everything happens to here: a few hundred steps, with rows, evaluations and saves close together."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import run as run_command
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_run

SPEC = "CartPole-v1:ppo"
WORDS = ("training.total_steps=320", "algorithm.rollout_steps=8", "algorithm.epochs=1", "algorithm.batch_size=16",
         "environment.num_envs=4", "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]",
         "evaluation.every_steps=96", "evaluation.episodes=1", "environment.max_episode_steps=20",
         "logging.every_steps=32", "checkpoint.every_steps=64", "checkpoint.keep=2")  # fmt: skip
TRAIN = ("train", SPEC, *WORDS, "-q")


def train(root: Path, *words: str) -> int:
    """`etude train`, in this process; returns its exit code."""
    return run_command([*TRAIN, *words, "--runs", str(root)])


def resume(run: Run, *words: str) -> int:
    """`etude resume`, in this process; returns its exit code."""
    return run_command(["resume", str(run.path), "-q", *words])


def only_run(root: Path) -> Run:
    (run,) = Run.list(root)
    return run


def assert_one_clear_line(printed: pytest.CaptureFixture[str], *parts: str) -> str:
    """What was printed ends in one line for the user, without a traceback; returns all of it."""
    said = printed.readouterr().err
    assert "Traceback" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith("etude: "), said
    for part in parts:
        assert part in last, (part, said)
    return said


def assert_whole_to_the_last_row(run: Run) -> None:
    """Every checkpoint is whole, and the metrics are rows without a gap, a repetition or a step back."""
    for checkpoint in run.checkpoints().list():
        checkpoint.verify()
    if run.metrics_path.exists():
        rows = read_rows(run.metrics_path)
        steps = [row["env_steps"] for row in rows]
        assert steps == sorted(set(steps))
        assert [row["cycles"] for row in rows] == sorted(row["cycles"] for row in rows)


def assert_ends_as(whole: Run, run: Run) -> None:
    """The run is finished, and is the run that nothing happened to."""
    assert run.status == "finished"
    assert_whole_to_the_last_row(run)
    assert_same_run(whole, run)

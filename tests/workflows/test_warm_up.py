"""The warm-up of algorithms with a replay buffer: it ends, and a run that ends before it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.errors import ConfigError
from tests.runs_compared import train
from tests.workflows.tiny_replay_runs import start

TINY = ("environment.num_envs=2", "evaluation.every_steps=0", "algorithm.batch_size=8")


@pytest.mark.parametrize(
    "spec", ["CartPole-v1:dqn", "Pendulum-v1:sac", "Pendulum-v1:td3", "Pendulum-v1:tqc", "Pendulum-v1:sql"]
)
def test_a_warm_up_that_would_never_end_is_refused(spec: str) -> None:
    # Defect 29: with a min_size of its own the buffer was ready, and actions stayed random to the end.
    words = ("buffers.replay.capacity=101", "buffers.replay.min_size=10", "algorithm.learning_starts=101", *TINY)
    with pytest.raises(ConfigError) as caught:
        compose(spec, words=words)
    (problem,) = caught.value.problems
    assert problem == (
        "buffers.replay.capacity=101: holds 100 transitions, so the warm-up of algorithm.learning_starts=101 would never end; "
        "raise the one or lower the other"
    )
    compose(spec, words=[word.replace("starts=101", "starts=100") for word in words])


def test_a_buffer_that_memory_made_smaller_ends_the_warm_up_when_it_is_full() -> None:
    words = ("buffers.replay.min_size=10", "algorithm.learning_starts=100", "training.total_steps=60", *TINY)
    orchestrator = start("Pendulum-v1:sac", words)
    orchestrator.buffers["replay"].store.rows = 10  # as where free memory is short
    held = []
    while orchestrator._run_cycle():
        held.append((orchestrator.buffers["replay"].size, orchestrator.workflow.is_warming_up()))  # type: ignore[attr-defined]
    assert all(warming == (size < 20) for size, warming in held)
    assert held[-1] == (20, False)


@pytest.mark.parametrize(
    ("spec", "words", "first"),
    [
        ("CartPole-v1:dqn", ("training.total_steps=500", "algorithm.learning_starts=1000"), "1,000"),
        ("CartPole-v1:ppo", ("training.total_steps=500", "algorithm.rollout_steps=256", "algorithm.batch_size=64"), "512"),
    ],
)
def test_a_budget_that_ends_before_the_first_update_is_told_at_both_ends(
    spec: str, words: tuple[str, ...], first: str, tmp_path: Path
) -> None:
    # Defect 29 and TRN-12: it said "Finished" after no update, and nothing else.
    run = train(spec, tmp_path, *words, "environment.num_envs=2", "evaluation.every_steps=0")
    said = [line for line in run.log_path.read_text(encoding="utf-8").splitlines() if "learnt" in line]
    assert [
        line.count(f"training.total_steps=500 ends before the first update, which comes after {first}") for line in said
    ] == [1, 1]
    assert "nothing will be learnt" in said[0]
    assert "nothing was learnt" in said[1]


def test_a_run_that_learns_says_when_that_starts_and_nothing_else(tmp_path: Path) -> None:
    """TRN-12: one line, then silence."""
    run = train("CartPole-v1:dqn", tmp_path, "training.total_steps=64", "algorithm.learning_starts=40", *TINY)
    log = run.log_path.read_text(encoding="utf-8")
    assert log.count("learning starts at 40") == 1
    assert "learnt" not in log

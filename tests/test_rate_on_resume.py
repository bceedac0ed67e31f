"""What a resume does with the learning rate: it goes on as saved, and a changed setting changes it from there on."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import session
from tests.runs_compared import assert_same_run, resume, stopped_after, train

SETTINGS = ("CartPole-v1:ppo", "training.total_steps=1024", "algorithm.rollout_steps=16", "algorithm.batch_size=32")
RISING = "algorithm.adaptive_kl=1000"
"""No step changes the policy by nearly as much, so that the rate rises with each of them, to the end of its range."""
HIGHEST = 1e-2


def _interrupted(root: Path, *words: str) -> Run:
    with stopped_after(4):
        return train(SETTINGS[0], root, *SETTINGS[1:], "evaluation.every_steps=0", *words)


def _rate(run: Run, *words: str) -> float:
    """The rate that a resume would begin with; it is killed before anything is trained or saved."""
    training = session.reopen(run, words=words, quiet=True)
    training.orchestrator.close()
    assert training._held is not None
    training._held.close()
    return training.orchestrator.workflow.hyper_parameters()["learning_rate"]


def test_a_changed_rate_takes_effect_where_it_adapts(tmp_path: Path) -> None:
    # Defect 20: the resume said "changed", and the rate went on from the checkpoint's.
    run = _interrupted(tmp_path, RISING)
    assert _rate(run) == pytest.approx(HIGHEST)
    assert _rate(run, "algorithm.learning_rate=2e-5") == pytest.approx(2e-5)
    # That resume has recorded the setting and was killed before its first save: the next one has it all the same.
    assert _rate(run) == pytest.approx(2e-5)
    with stopped_after(1):
        resume(run)
    assert 2e-5 < _rate(run) <= HIGHEST, "it adapts from there, and an unchanged setting does not begin anew"
    assert resume(run).status == "finished"
    assert read_rows(run.metrics_path)[-1]["hp/learning_rate"] == pytest.approx(HIGHEST)


def test_a_resume_with_a_changed_rate_is_exact_too(tmp_path: Path) -> None:
    once, twice = (_interrupted(tmp_path / name, "algorithm.adaptive_kl=0.01") for name in ("once", "twice"))
    resume(once, "algorithm.learning_rate=2e-5")
    with stopped_after(2):
        resume(twice, "algorithm.learning_rate=2e-5")
    resume(twice)
    assert_same_run(once, twice)


def test_a_rate_that_begins_to_adapt_begins_with_the_one_asked_for(tmp_path: Path) -> None:
    run = _interrupted(tmp_path, "algorithm.learning_rate=3e-4")
    assert _rate(run, RISING, "algorithm.learning_rate=2e-5") == pytest.approx(2e-5)


def test_a_scheduled_rate_is_read_at_the_steps_done(tmp_path: Path) -> None:
    run = _interrupted(tmp_path, "algorithm.learning_rate=3e-4")
    done = read_rows(run.metrics_path)
    resume(run, "algorithm.learning_rate=lin_1e-3")
    rates = [row["hp/learning_rate"] for row in read_rows(run.metrics_path)]
    assert rates[: len(done)] == pytest.approx([3e-4] * len(done))
    assert all(0 < rate < 1e-3 for rate in rates[len(done) :])
    assert rates[len(done) :] == sorted(rates[len(done) :], reverse=True)


def test_a_checkpoint_of_before_that_knows_no_setting_goes_on_as_it_was(tmp_path: Path) -> None:
    run = _interrupted(tmp_path, RISING)
    training = session.reopen(run, quiet=True)
    workflow = training.orchestrator.workflow
    state = workflow.state_dict()
    del state["adapted_from"]
    workflow.load_state_dict(state)
    assert workflow.hyper_parameters()["learning_rate"] == pytest.approx(HIGHEST)
    training.orchestrator.close()
    assert training._held is not None
    training._held.close()

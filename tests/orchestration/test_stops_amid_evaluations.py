"""An evaluation may take minutes, a planner's above all: a signal does not wait for it, and the resumed run has it still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etude.orchestration import evaluator
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.verification.verify import verify
from tests.runs_compared import assert_same_run, resume, train

SPEC = "CartPole-v1:ppo"
WORDS = (
    "training.total_steps=512",
    "environment.num_envs=4",
    "algorithm.rollout_steps=16",
    "algorithm.batch_size=64",
    "algorithm.epochs=1",
    "evaluation.every_steps=128",
    "evaluation.episodes=4",
    "experiment.compile=off",
)


@contextmanager
def a_signal_in_evaluation(number: int, after_steps: int = 3) -> Iterator[None]:
    """Within, the signal comes amid the n-th evaluation of each training, as the handler of one would have it."""
    original, begun = Orchestrator._evaluate, 0

    def evaluate(self: Orchestrator, attend: evaluator.Attend | None = None) -> bool:
        nonlocal begun
        begun += 1
        assert attend is not None

        def interrupted(done: int, episodes: int, decisions: int) -> bool:
            if begun == number and decisions == after_steps:
                self.interrupt("SIGTERM", hurry=True)
            return attend(done, episodes, decisions)

        return original(self, interrupted)

    Orchestrator._evaluate = evaluate
    try:
        yield
    finally:
        Orchestrator._evaluate = original


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(SPEC, tmp_path_factory.mktemp("whole"), *WORDS)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_run_that_was_stopped_there_and_resumed_is_the_run_that_was_not(number: int, whole: Run, tmp_path: Path) -> None:
    with a_signal_in_evaluation(number):
        run = train(SPEC, tmp_path, *WORDS)
    assert run.status == "interrupted"
    steps = 128 * number
    assert run.checkpoints().newest_whole().counters["env_steps"] == steps
    assert read_rows(run.metrics_path)[-1]["env_steps"] < steps, "what it came to there is not measured yet"
    resume(run)
    assert run.status == "finished"
    assert_same_run(run, whole)


def test_stopped_again_and_again_in_the_same_evaluation_it_still_comes_to_the_same_end(whole: Run, tmp_path: Path) -> None:
    with a_signal_in_evaluation(2):
        run = train(SPEC, tmp_path, *WORDS)
    with a_signal_in_evaluation(1):
        resume(run)
    assert run.status == "interrupted"
    resume(run)
    assert_same_run(run, whole)


def test_a_stop_that_is_in_no_hurry_waits_for_the_evaluation(whole: Run, tmp_path: Path) -> None:
    original = Orchestrator._evaluate

    def evaluate(self: Orchestrator, attend: evaluator.Attend | None = None) -> bool:
        self.interrupt("stopped from outside")
        return original(self, attend)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Orchestrator, "_evaluate", evaluate)
        run = train(SPEC, tmp_path, *WORDS)
    assert "eval/return_mean" in read_rows(run.metrics_path)[-1]
    resume(run)
    assert_same_run(run, whole)


@pytest.mark.parametrize("number", [2, 4])
def test_such_a_run_is_verified_as_it_stands(number: int, tmp_path: Path) -> None:
    with a_signal_in_evaluation(number):
        run = train(SPEC, tmp_path, *WORDS)
    report = verify(run)
    assert report.outcome == "reproduced", "\n".join(report.lines())


def test_an_evaluation_that_takes_long_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "SECONDS_BETWEEN_NEWS", 0)
    run = train(SPEC, tmp_path, *WORDS, "training.total_steps=128", "evaluation.num_envs=2")
    assert "evaluating: 2 of 4 episodes, " in run.log_path.read_text()

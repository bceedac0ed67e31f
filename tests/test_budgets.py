"""A budget is a total, in steps or in iterations; raised at a resume, the run is the one that had it from the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.errors import UserError
from etude.runs.run import Run
from etude.training import assembly, session
from tests.runs_compared import assert_same_run, assert_same_state, resume, state, train

PPO = ("environment.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "algorithm.epochs=1")
QUICK = (*PPO, "evaluation.every_steps=0", "checkpoint.every_steps=64", "logging.every_steps=32", "experiment.compile=off")


def _hint(run: Run) -> str:
    with pytest.raises(UserError, match="is finished") as caught:
        session.resume(run, quiet=True)
    found = re.search(r"training\.\w+=\d+", str(caught.value))
    assert found is not None, caught.value
    return found[0]


def _iteration(spec: str, *words: str) -> int:
    return assembly.resolve(
        compose(spec, words=[*words, "training.iterations=3", "experiment.compile=off"]).config
    ).training.total_steps


def test_a_budget_in_iterations_is_raised_by_the_word_of_the_hint_and_by_steps(tmp_path: Path) -> None:
    # Defect 21, TRN-15: the hint named total_steps, which iterations overruled.
    run = train("CartPole-v1:ppo", tmp_path, *QUICK, "training.iterations=3")
    assert run.summary["counters"]["env_steps"] == 96
    assert _hint(run) == "training.iterations=6"
    resume(run, "training.iterations=6")
    assert run.summary["counters"]["cycles"] == 6
    resume(run, "training.total_steps=256")
    assert run.summary["counters"]["env_steps"] == 256
    assert _hint(run) == "training.total_steps=512"


def test_an_iteration_is_a_pass_of_collecting_and_learning_whatever_the_algorithm() -> None:
    # Defect 21: action repeat was ignored, and without a rollout vector steps were counted.
    assert _iteration("CartPole-v1:ppo", *PPO) == 3 * 8 * 4
    assert _iteration("CartPole-v1:ppo", *PPO, "environment.wrappers=[{id:frame_skip,skip:4}]") == 3 * 8 * 4 * 4
    off_policy = ("environment.num_envs=4", "algorithm.train_every=5", "algorithm.learning_starts=16")
    assert _iteration("CartPole-v1:dqn", *off_policy) == 3 * 5 * 4
    assert _iteration("CartPole-v1:ppo", *PPO, "training.phases=[{name:a,hooks:[{collect:{count:2}},update]}]") == 3 * 2 * 4
    with pytest.raises(UserError, match=r"training.iterations=3: not every pass of these phases collects the same"):
        _iteration("CartPole-v1:ppo", *PPO, "training.phases=[{name:a,duration_cycles:2},{name:b,hooks:[collect,update]}]")


def test_iterations_beyond_64_bits_of_steps_are_refused() -> None:
    with pytest.raises(UserError, match=r"training.iterations=4611686018427387904: is too large"):
        assembly.resolve(compose("CartPole-v1:ppo", words=[*PPO, f"training.iterations={2**62}"]).config)


def test_a_hint_names_a_budget_above_what_is_done(tmp_path: Path) -> None:
    # Defect 21: with a budget lowered below what was done, the hint was below it too.
    run = train("CartPole-v1:ppo", tmp_path, *QUICK, "training.total_steps=320")
    with pytest.raises(UserError, match=r"training\.total_steps=640"):
        session.resume(run, words=["training.total_steps=64"], quiet=True)


def test_phases_that_are_over_are_not_said_to_need_a_budget(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *QUICK, "training.phases=[{name:a,duration_steps:64}]")
    with pytest.raises(UserError, match="its phases are over, whatever the budget"):
        session.resume(run, quiet=True)


@pytest.mark.parametrize("budget", [96, 100, 192])
@pytest.mark.parametrize("last", ["{name:b}", "{name:b,duration_steps:64}"])
def test_a_larger_budget_goes_on_amid_the_phase_where_the_old_one_ended(budget: int, last: str, tmp_path: Path) -> None:
    # Defect 22: the rest of the phase was skipped.
    words = (
        *QUICK,
        "algorithm.learning_rate=1e-3",
        "algorithm.clip_range=0.2",
        f"training.phases=[{{name:a,duration_steps:192}},{last}]",
    )
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *words, "training.total_steps=320")
    run = train("CartPole-v1:ppo", tmp_path / "cut", *words, f"training.total_steps={budget}")
    resume(run, "training.total_steps=320")
    if budget == 100:  # amid a rollout; the end of that budget has a row of its own
        assert_same_state(state(whole), state(run))
    else:
        assert_same_run(whole, run)


def test_a_larger_budget_is_refused_where_later_phases_have_learnt_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Defect 22
    words = ("environment.num_envs=4", "algorithm.learning_starts=16", "algorithm.batch_size=8", *QUICK[4:])
    phases = "training.phases=[{name:a,duration_steps:128},{name:b,type:offline,duration_updates:5}]"
    run = train("CartPole-v1:dqn", tmp_path, *words, "training.total_steps=64", phases, "checkpoint.keep=9")
    assert etude(["resume", str(run.path), "training.total_steps=128", "-q"]) == 2
    said = capsys.readouterr().err
    assert "the budget ended amid phase 'a', and phases after it have learnt since" in said
    assert etude(["resume", str(run.path), "training.total_steps=128", "--checkpoint", "0", "-q"]) == 0
    whole = train("CartPole-v1:dqn", tmp_path / "whole", *words, "training.total_steps=128", phases)
    assert_same_run(whole, Run.open(run.path))

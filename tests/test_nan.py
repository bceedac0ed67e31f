"""Weights that become NaN: the run stops, or skips the step, or goes back; never goes on with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.errors import NonFiniteError
from etude.orchestration.callbacks import Callback, Progress
from etude.orchestration.evaluator import evaluate_episodes
from etude.runs.run import Run
from etude.telemetry.alert_log import alerts_of
from etude.telemetry.jsonl import read_rows
from etude.training import session
from etude.using.stored_policy import open_policy
from etude.workflows.ppo import PPO
from tests.runs_compared import assert_same_run, stopped_after, train

WORDS = ("training.total_steps=4000", "algorithm.epochs=2", "evaluation.episodes=2", "checkpoint.every_steps=1000")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the n-th rollouts rewards that are not numbers."""

    def give(*rollouts: int) -> None:
        original, calls = PPO._prepare, 0

        def prepare(self: PPO, columns: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls in rollouts:
                columns["reward"][3, 2] = torch.nan
            return original(self, columns)

        monkeypatch.setattr(PPO, "_prepare", prepare)

    return give


def test_by_default_the_run_stops_and_its_last_save_is_whole(poison: Any, tmp_path: Path) -> None:
    poison(6)
    with pytest.raises(NonFiniteError, match=r"actor.layers.0.weight is NaN at 1,536 environment steps and 12 updates"):
        train("CartPole-v1:ppo", tmp_path, *WORDS)
    run = Run.resolve("@last", tmp_path)
    assert run.status == "failed"
    assert "is NaN" in run.record["stop_reason"]
    saved = run.checkpoints().newest_whole()
    assert saved.counters["env_steps"] == 1024
    assert all(torch.isfinite(weight).all() for weight in saved.load(["policy"])["policy"].values())  # type: ignore[union-attr]


@pytest.mark.parametrize("words", [(), ("algorithm.target_kl=0.05",), ("algorithm.optimizer={type: sgd}",)])
def test_skip_leaves_the_step_out_and_counts_it(poison: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    poison(6)
    run = train("CartPole-v1:ppo", tmp_path, *WORDS, *words, "training.on_nan=skip", "logging.every_steps=256")
    assert run.status == "finished"
    skipped = {int(row["env_steps"]): row["train/skipped"] for row in read_rows(run.metrics_path) if "train/skipped" in row}
    assert {steps for steps, share in skipped.items() if share} == {1536}
    assert skipped[1536] == 1


def test_rollback_goes_back_to_the_last_save_and_takes_another_course(
    poison: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(6)
    run = train("CartPole-v1:ppo", tmp_path, *WORDS, "training.on_nan=rollback", "logging.every_steps=256")
    assert run.status == "finished"
    steps = [row["env_steps"] for row in read_rows(run.metrics_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] == 4000
    assert "000" in (run.logs / "rollbacks.jsonl").read_text()
    assert "rolled back to checkpoint" in run.log_path.read_text()
    raised, cleared = alerts_of(run.path)
    assert (raised["id"], raised["state"], raised["env_steps"]) == ("non_finite", "raised", 1024)
    assert raised["message"].endswith("(try 1 of 3)")
    assert (cleared["id"], cleared["state"], cleared["env_steps"]) == ("non_finite", "cleared", 1536)
    # The rollout after the save is gathered with other random numbers than before.
    again = [row for row in read_rows(run.logs / "superseded.jsonl") if row["env_steps"] == 1280]
    now = [row for row in read_rows(run.metrics_path) if row["env_steps"] == 1280]
    assert len(again) == len(now) == 1
    assert again[0]["train/loss"] != now[0]["train/loss"]


def test_what_a_killed_rollback_left_behind_changes_no_later_one(poison: Any, tmp_path: Path) -> None:
    """Defect 5: a rollback was numbered by the lines of a log that outlives a kill, and with it the course it took."""
    words = (*WORDS, "training.on_nan=rollback", "logging.every_steps=256", "training.total_steps=2000")
    runs = []
    for was_killed in (False, True):
        poison(6)
        with stopped_after(5):
            run = train("CartPole-v1:ppo", tmp_path / str(was_killed), *words)
        if was_killed:
            run.logs.mkdir(exist_ok=True)
            (run.logs / "rollbacks.jsonl").write_text('{"number": 1}\n')
        runs.append(session.resume(run, quiet=True).run)
    assert_same_run(*runs)


def test_a_run_that_breaks_every_time_stops_after_three_rollbacks(poison: Any, tmp_path: Path) -> None:
    poison(*range(6, 100))
    with pytest.raises(NonFiniteError):
        train("CartPole-v1:ppo", tmp_path, *WORDS, "training.on_nan=rollback")
    run = Run.resolve("@last", tmp_path)
    assert run.status == "failed"
    assert len((run.logs / "rollbacks.jsonl").read_text().splitlines()) == 3


class StopsAt(Callback):
    """Stops a run after some cycles, at which nothing else is due."""

    def __init__(self, cycle: int) -> None:
        self._left, self.told = cycle, []

    def on_cycle(self, progress: Progress) -> str | None:
        self._left -= 1
        return "enough" if self._left == 0 else None

    def on_exception(self, progress: Progress, error: BaseException) -> None:
        self.told.append(type(error))


RARELY = ("evaluation.every_steps=0", "checkpoint.every_steps=100000", "logging.every_steps=100000")


def test_a_callback_that_stops_the_run_saves_no_nan(poison: Any, tmp_path: Path) -> None:
    poison(2)
    training = session.start(compose("CartPole-v1:ppo", words=[*WORDS, *RARELY]), root=tmp_path, quiet=True)
    training.orchestrator.add_callback(callback := StopsAt(2))
    with pytest.raises(NonFiniteError, match="is NaN"):
        training.finish()
    assert training.run.checkpoints().newest_whole().counters["env_steps"] == 0
    assert callback.told == [NonFiniteError]


def test_the_last_step_of_a_run_is_looked_at_whatever_is_due(poison: Any, tmp_path: Path) -> None:
    poison(4)
    with pytest.raises(NonFiniteError, match="is NaN"):
        train("CartPole-v1:ppo", tmp_path, *WORDS, *RARELY, "training.total_steps=1024")
    assert Run.resolve("@last", tmp_path).checkpoints().newest_whole().counters["env_steps"] == 0


def test_a_phase_does_not_evaluate_nan(poison: Any, tmp_path: Path) -> None:
    poison(1)
    phase = "training.phases=[{name: a, hooks: [collect, update, evaluate]}]"
    with pytest.raises(NonFiniteError, match=r"actor.* is NaN at 256 environment steps"):
        train("CartPole-v1:ppo", tmp_path, *WORDS, *RARELY, phase)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_a_policy_of_actions_that_are_no_numbers_is_not_blamed_on_the_environment(tmp_path: Path) -> None:
    """Weights of 1e30 are finite, and what they compute is not."""
    words = ("algorithm.learning_rate=1e30", "algorithm.learning_starts=16", "algorithm.batch_size=16")
    few = ("environment.num_envs=4", "training.total_steps=2000", "evaluation.episodes=2")
    with pytest.raises(NonFiniteError, match=r"actor.* is NaN .*a lower learning rate may prevent it"):
        train("Pendulum-v1:sac", tmp_path, *words, *few)
    run = Run.resolve("@last", tmp_path)
    policy = open_policy(run, "last")
    environment = make_environment(policy.config.environment, num_envs=1)
    built = policy.build(environment)
    for weight in built.state_dict().values():
        weight.copy_(torch.sign(weight) * 1e30)
    with pytest.raises(NonFiniteError, match=r"answers an evaluation's first observation with an action that is NaN"):
        evaluate_episodes(built, environment, 1, mode="greedy", seed=0)
    environment.close()

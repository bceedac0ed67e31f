from __future__ import annotations

import math
from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.orchestration.best_evaluations import BestEvaluations, Monitor, Ranked
from etude.runs.index import RunIndex
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import session
from tests.runs_compared import assert_same_run, resume, stopped_after, train

TINY = (
    "environment.num_envs=2",
    "algorithm.rollout_steps=32",
    "algorithm.epochs=1",
    "algorithm.batch_size=64",
    "evaluation.episodes=1",
    "evaluation.every_steps=64",
    "checkpoint.every_steps=128",
    "training.total_steps=1024",
)


def added(best: BestEvaluations, *values: float) -> list[int | None]:
    ranked = [best.add({best.monitor.metric: value}, step, 2 * step) for step, value in enumerate(values)]
    return [None if each is None else each.place for each in ranked]


def test_the_first_of_equal_evaluations_stays_the_best() -> None:
    best = BestEvaluations(Monitor())
    assert added(best, 1.0, 3.0, 3.0, 2.0) == [0, 0, None, None]
    assert (best.value, best.env_steps) == (3.0, 1)


def test_the_lowest_may_be_the_best() -> None:
    best = BestEvaluations(Monitor("eval/length_mean", "min"))
    assert added(best, 5.0, 7.0, 4.0) == [0, None, 0]
    assert (best.value, best.monitor.best_name) == (4.0, "eval/length_best")


def test_the_best_n_have_places() -> None:
    best = BestEvaluations(Monitor(keep=2))
    assert added(best, 1.0, 3.0, 2.0, 2.0, 9.0) == [0, 0, 1, None, 0]
    again = BestEvaluations(Monitor(keep=2))
    again.load_state_dict(best.state_dict())
    assert added(again, 2.5, 3.5) == [None, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_nobody_s_best(value: float) -> None:
    best = BestEvaluations(Monitor())
    assert added(best, value) == [None]
    assert best.value is None


def test_values_of_another_metric_are_forgotten_and_those_of_an_earlier_etude_known() -> None:
    best = BestEvaluations(Monitor())
    added(best, 5.0)
    other = BestEvaluations(Monitor("eval/length_mean"))
    other.load_state_dict(best.state_dict())
    assert other.value is None
    best.load_state_dict(7.0)
    assert (best.value, best.env_steps) == (7.0, None)
    best.load_state_dict(None)
    assert best.value is None


def test_a_metric_that_this_task_lacks_is_an_error_but_no_episode_in_time_is_none() -> None:
    best = BestEvaluations(Monitor("eval/raw_return_mean"))
    assert best.add({"eval/episodes": 0.0}, 0, 0) is None
    with pytest.raises(UserError, match=r"checkpoint\.monitor=eval/raw_return_mean: evaluations of this task measure"):
        best.add({"eval/episodes": 1.0, "eval/return_mean": 1.0}, 0, 0)
    assert best.add({"eval/raw_return_mean": 1.0}, 5, 0) == Ranked(0, 1.0)


def test_a_monitor_that_evaluations_do_not_measure_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.monitor=eval/retrun_mean: .* did you mean 'eval/return_mean'"):
        session.start(compose("CartPole-v1:ppo", words=["checkpoint.monitor=eval/retrun_mean"]), root=tmp_path, quiet=True)
    assert not list(tmp_path.iterdir())


def evaluated(run: Run, metric: str) -> dict[int, float]:
    return {int(row["env_steps"]): row[metric] for row in read_rows(run.metrics_path) if metric in row}


def test_the_monitored_metric_and_its_direction_decide(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "checkpoint.monitor=eval/length_mean", "checkpoint.monitor_mode=min")
    lengths = evaluated(run, "eval/length_mean")
    shortest = min(lengths.values())
    step = next(step for step, length in lengths.items() if length == shortest)
    assert run.checkpoints().find("best").counters["env_steps"] == step
    expected = {"metric": "eval/length_mean", "mode": "min", "value": shortest, "env_steps": step}
    updates = next(row["updates"] for row in read_rows(run.metrics_path) if row["env_steps"] == step)
    assert run.summary["best"] == {**expected, "updates": updates}
    (row,) = RunIndex(tmp_path).read().runs
    assert (row.best, row.best_step, row.best_metric, row.best_mode) == (shortest, step, "eval/length_mean", "min")
    assert row.last == list(lengths.values())[-1]
    assert evaluated(run, "eval/length_best") == {s: min(list(lengths.values())[: i + 1]) for i, s in enumerate(lengths)}
    assert Run.resolve("@best", tmp_path).id == run.id


def test_the_best_n_policies_are_kept(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "checkpoint.keep_best=3", "checkpoint.keep=1")
    returns = evaluated(run, "eval/return_mean")
    ranked = sorted(returns, key=lambda step: (-returns[step], step))[:3]
    kept = {saved.counters["env_steps"]: saved for saved in run.checkpoints().list()}
    assert set(ranked) | {1024} == set(kept)
    assert kept[ranked[0]].is_best
    for step in ranked:
        kept[step].verify()


def test_a_stop_leaves_no_trace_in_what_is_kept(tmp_path: Path) -> None:
    words = (*TINY, "checkpoint.keep_best=2")
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *words)
    with stopped_after(7):
        run = train("CartPole-v1:ppo", tmp_path / "stopped", *words)
    resume(run)
    assert_same_run(whole, run)
    assert run.summary["best"] == whole.summary["best"]
    best = [each.checkpoints().find("best").counters["env_steps"] for each in (whole, run)]
    assert best[0] == best[1]


def first_lowest(run: Run) -> tuple[int, float]:
    returns = evaluated(run, "eval/return_mean")
    return min(returns.items(), key=lambda item: (item[1], item[0]))


def test_the_best_of_an_abandoned_future_is_not_the_best(tmp_path: Path) -> None:
    # Defect 18: after `resume --checkpoint EARLIER` the link, the list and @best told of a future that was given up.
    # The lowest counts, because so short a training only gets worse.
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "checkpoint.keep=20", "checkpoint.monitor_mode=min")
    end, early = first_lowest(run), 256
    assert end[0] > early + 64, "nothing to be stale"
    with stopped_after(1):
        resume(run, checkpoint=str(early))
    step, value = first_lowest(run)
    assert step <= early + 64
    assert (run.summary["best"]["env_steps"], run.summary["best"]["value"]) == (step, value)
    assert run.checkpoints().find("best").counters["env_steps"] == step
    (row,) = RunIndex(tmp_path).read().runs
    assert (row.best, row.best_step) == (value, step)
    # It goes on to the end that it had before: the way back changed nothing.
    resume(run)
    assert first_lowest(run) == end
    assert run.checkpoints().find("best").counters["env_steps"] == run.summary["best"]["env_steps"] == end[0]


def test_before_the_first_evaluation_nothing_is_the_best(tmp_path: Path) -> None:
    # Defect 18.
    run = train("CartPole-v1:ppo", tmp_path, *TINY, "checkpoint.keep=20", "evaluation.warmup_steps=600")
    with stopped_after(1):
        resume(run, checkpoint="000000")
    assert run.summary["best"]["value"] is None
    assert not any(saved.is_best for saved in run.checkpoints().list())
    assert not (run.checkpoints_path / "best").is_symlink()

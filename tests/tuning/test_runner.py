"""How trials are run: side by side, resumed when killed, pruned, recorded when they fail, and continued by `tune`."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.errors import UserError
from etude.runs.indexed_run import IndexedRun
from etude.tuning import runner as runner_module
from etude.tuning.backend import Job
from etude.tuning.cost_search import Point, front, score_by
from etude.tuning.places import SweepFolder
from etude.tuning.plan import Plan
from etude.tuning.report import make_report, text_lines
from etude.tuning.runner import SweepRunner
from etude.tuning.spec import SweepConfig, build_sweep
from etude.tuning.study import Study
from etude.tuning.tuned_report import best_preset, tuned_lines
from etude.tuning.tuner import TuneRunner
from tests.tuning.doubles import EVERY, TOTAL, FakeBackend


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "POLL_S", 0)


def gamma(job: Job) -> float:
    return next((float(word.partition("=")[2]) for word in job.arguments if word.startswith("algorithm.gamma=")), 0.5)


def by_gamma(job: Job, steps: int) -> float:
    return gamma(job) * steps + job.seed


def sweep(**settings: Any) -> SweepConfig:
    data = {"name": "s", "base": "CartPole-v1:ppo", "sweep": {"algorithm.gamma": [0.1, 0.3, 0.2, 0.4]}}
    return build_sweep({**data, "words": [f"training.total_steps={TOTAL}"], **settings})


def opened(root: Path, asked: SweepConfig) -> tuple[Plan, Study]:
    plan = Plan(asked)
    return plan, SweepFolder(root, asked.name).open(asked, plan)


def run(root: Path, backend: FakeBackend, asked: SweepConfig) -> SweepRunner:
    plan, study = opened(root, asked)
    kind = SweepRunner if asked.tune is None else TuneRunner
    runner = kind(plan, study, backend, n_trials=asked.n_trials, timeout_s=asked.timeout_s)
    assert runner.run() == "done"
    return runner


def test_every_trial_runs_side_by_side_and_the_last_evaluation_counts(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, lambda job, steps: by_gamma(job, 100) if steps == TOTAL else 1e6, at_once=3)
    study = run(tmp_path, backend, sweep()).study
    assert backend.most_at_once == 3
    assert [trial.objective for trial in study.trials] == [(gamma * 100 + 1,) for gamma in (0.1, 0.3, 0.2, 0.4)]
    assert study.best(1)[0].values == {"algorithm.gamma": 0.4}


@pytest.mark.parametrize(("statistic", "expected"), [("mean", 2.0), ("median", 1.0), ("min", 0.0), ("max", 5.0)])
def test_seeds_come_to_one_value(tmp_path: Path, statistic: str, expected: float) -> None:
    scores = {1: 0.0, 2: 1.0, 3: 5.0}
    backend = FakeBackend(tmp_path, lambda job, steps: scores[job.seed])
    asked = sweep(sweep={"algorithm.gamma": [0.9]}, seeds="1-3", objective={"statistic": statistic})
    trial = run(tmp_path, backend, asked).study.trials[0]
    assert trial.objective == (expected,)
    assert trial.facts["seeds"] == {"1": 0.0, "2": 1.0, "3": 5.0}


def test_a_run_that_is_killed_goes_on_and_one_that_keeps_dying_fails(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    backend.kills = {("s/0000", 1): [300, 500], ("s/0001", 1): [100 * n for n in range(1, 10)] * 2}
    backend.kills["s/0001", 1] = [100] * 9
    study = run(tmp_path, backend, sweep()).study
    assert [trial.state for trial in study.trials] == ["complete", "failed", "complete", "complete"]
    assert backend.calls.count(("resume", "s/0000", 1)) == 2
    assert backend.calls.count(("start", "s/0000", 1)) == 1
    assert study.trials[1].error == "ended by SIGKILL 4 times; retries=3"


def test_a_trial_that_fails_is_recorded_with_its_error_and_can_be_tried_again(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    backend.refused["s/0002", 1] = "etude: algorithm.gamma=7: must be at most 1"
    study = run(tmp_path, backend, sweep()).study
    assert [trial.state for trial in study.trials] == ["complete", "complete", "failed", "complete"]
    assert study.trials[2].error == "algorithm.gamma=7: must be at most 1"
    backend.refused.clear()
    plan, again = opened(tmp_path, sweep())
    again.reopen(again.trials[2])
    SweepRunner(plan, again, backend, n_trials=None, timeout_s=None).run()
    assert [trial.state for trial in opened(tmp_path, sweep())[1].trials] == ["complete"] * 4


def test_an_unknown_metric_is_one_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"objective\.metric=eval/retrun_mean: .* did you mean 'eval/return_mean'"):
        run(tmp_path, FakeBackend(tmp_path, by_gamma), sweep(objective="eval/retrun_mean"))


def test_a_signal_stops_the_runs_and_the_same_sweep_goes_on_with_them(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    plan, study = opened(tmp_path, sweep())
    runner = SweepRunner(plan, study, backend, n_trials=None, timeout_s=None)
    looks = []

    def interrupt(now: SweepRunner) -> None:
        looks.append(now)
        if len(looks) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    assert runner.run(interrupt) == "interrupted"
    assert {run.status for run in backend.runs.values()} == {"interrupted"}
    assert not any(trial.ended for trial in study.trials)
    study = run(tmp_path, backend, sweep()).study
    assert [trial.state for trial in study.trials] == ["complete"] * 4
    assert [call for call in backend.calls if call[0] == "resume"] == [("resume", "s/0000", 1), ("resume", "s/0001", 1)]
    assert len([call for call in backend.calls if call[0] == "start"]) == 4


def test_what_had_ended_when_a_sweep_is_taken_up_again_is_recorded_and_not_run_again(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    _, study = opened(tmp_path, sweep())
    for number, status in enumerate(["finished", "failed", "interrupted", "stopped"]):
        trial = study.ask()
        assert trial is not None
        path = tmp_path / str(number)
        run_of = IndexedRun(f"r{number}", path, group=f"s/{number:04d}", seed=1, status=status, env_steps=EVERY)
        backend.runs[f"s/{number:04d}", 1] = replace(run_of, metrics={"eval/return_mean": float(number)})
        path.mkdir()
    plan, again = opened(tmp_path, sweep())
    runner = SweepRunner(plan, again, backend, n_trials=None, timeout_s=1e-9)  # no time to start anything
    assert runner.run() == "timeout"
    assert [trial.state for trial in again.trials] == ["complete", "failed", "running", "complete"]
    assert again.trials[1].error == "run r1 failed"
    assert not backend.calls
    run(tmp_path, backend, sweep())
    assert backend.calls == [("resume", "s/0002", 1)]


def test_time_is_over_and_more_time_goes_on(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    plan, study = opened(tmp_path, sweep())
    assert SweepRunner(plan, study, backend, n_trials=None, timeout_s=1e-9).run() == "timeout"
    assert run(tmp_path, backend, sweep()).study.best(1)[0].values == {"algorithm.gamma": 0.4}


def test_the_pruner_ends_what_falls_behind_by_evaluations(tmp_path: Path) -> None:
    values = [0.9, 0.8, 0.85, 0.1, 0.95]
    asked = sweep(sweep={"algorithm.gamma": values}, pruner={"type": "median", "startup_trials": 2})
    backend = FakeBackend(tmp_path, by_gamma, at_once=1)
    study = run(tmp_path, backend, asked).study
    assert [trial.state for trial in study.trials] == ["complete", "complete", "complete", "pruned", "complete"]
    assert backend.runs["s/0003", 1].env_steps == EVERY
    assert list(study.trials[0].reports) == list(range(1, 10))


def test_a_second_stage_begins_with_the_best_of_the_first(tmp_path: Path) -> None:
    run(tmp_path, FakeBackend(tmp_path, by_gamma), sweep(name="coarse"))
    fine = sweep(name="fine", after="coarse", sweep={"algorithm.gae_lambda": [0.8, 0.9]})
    plan = Plan(SweepFolder(tmp_path, "fine").staged(fine))
    assert plan.compose({"algorithm.gae_lambda": 0.8}).config.algorithm.gamma == 0.4
    with pytest.raises(UserError, match="after=fine"):
        SweepFolder(tmp_path, "fine").staged(sweep(name="fine", after="fine"))


TUNED = {"method": "bayes", "seeds": [1, 2], "sweep": {"algorithm.gamma": {"low": 0.0, "high": 1.0}}}


def test_tune_continues_the_promising_and_never_starts_them_again(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma, at_once=2)
    study = run(tmp_path, backend, sweep(**TUNED, n_trials=10, tune={"startup_trials": 4, "finalists": 1})).study
    starts = [call for call in backend.calls if call[0] == "start"]
    assert len(starts) == len(set(starts)) == 10 + 2  # ten trials, and the other seed of the winner and of the defaults
    assert study.trials[0].values == {}
    assert study.trials[0].state == "complete"
    steps = [backend.runs[f"s/{trial.number:04d}", 1].env_steps or 0 for trial in study.trials]
    assert sorted(set(steps)) == [100, 300, 900]
    assert steps.count(100) >= 5
    best = study.best(1)[0]
    assert best.facts["seeds"].keys() == {"1", "2"}
    # Who came furthest is who was best at the rung before.
    whole = [trial for trial in study.trials if trial.values and trial.state == "complete"]
    others = [trial.reports[1] for trial in study.trials if trial.values and trial.state == "pruned"]
    assert min(trial.reports[1] for trial in whole) >= sorted(others)[len(others) // 2]


def test_tune_that_was_killed_goes_on_at_its_rungs(tmp_path: Path) -> None:
    asked = sweep(**TUNED, n_trials=8, tune={"startup_trials": 20, "finalists": 1})
    whole = run(tmp_path / "whole", FakeBackend(tmp_path / "whole", by_gamma), asked).study
    backend = FakeBackend(tmp_path, by_gamma)
    for sitting in (5, 9, 14):
        plan, study = opened(tmp_path, asked)
        looks: list[Any] = []

        def kill(now: SweepRunner, looks: list[Any] = looks, sitting: int = sitting) -> None:
            looks.append(now)
            if len(looks) == sitting:
                raise KeyError("killed")

        with pytest.raises(KeyError):
            TuneRunner(plan, study, backend, n_trials=8, timeout_s=None).run(kill)
    study = run(tmp_path, backend, asked).study
    assert [trial.values for trial in study.trials] == [trial.values for trial in whole.trials]
    assert len([call for call in backend.calls if call[0] == "start"]) == len(backend.runs)
    best, expected = study.best(1)[0], whole.best(1)[0]
    assert (best.values, best.facts["seeds"]) == (expected.values, expected.facts["seeds"])


def test_who_won_by_all_seeds_is_best_everywhere(tmp_path: Path) -> None:
    study = run(tmp_path, FakeBackend(tmp_path, by_gamma), sweep(**TUNED, n_trials=20, tune={"startup_trials": 20})).study
    first, second = [trial for trial in study.best() if trial.values][:2]
    study.note(first, final=1.0, seeds={"1": 900.0, "2": -898.0})
    study.note(second, final=2000.0, seeds={"1": 800.0, "2": 3200.0})
    report = make_report(SweepFolder(tmp_path, "s"))
    assert report.best[0].trial.number == second.number
    assert f"trial {second.number:04d}, eval/return_mean 2,000" in tuned_lines(report, str)[0]
    assert "eval/return_mean 2,000 (mean); seeds 1, 2." in best_preset(report)
    (row,) = [line.split() for line in text_lines(report, {"algorithm.gamma": "gamma"}) if line.startswith("1 ")]
    assert row[:3] == ["1", f"{second.number:04d}", "2,000"]


def test_a_budget_in_steps_ends_the_search(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path, by_gamma)
    study = run(tmp_path, backend, sweep(**TUNED, tune={"total_steps": 4000, "startup_trials": 50, "finalists": 0})).study
    searched = sum(run.env_steps or 0 for run in backend.runs.values())
    assert 3000 <= searched <= 4000 + 2 * TOTAL
    assert any(trial.values and trial.state == "complete" for trial in study.trials)


def test_the_front_is_what_nothing_cheaper_beats() -> None:
    curves = {0: [Point(1.0, 10, 5.0), Point(4.0, 40, 9.0)], 1: [Point(2.0, 10, 4.0), Point(3.0, 20, 9.5)]}
    assert [(trial, point.seconds) for trial, point in front(curves, "max")] == [(0, 1.0), (1, 3.0)]
    assert [(trial, point.seconds) for trial, point in front(curves, "min")] == [(0, 1.0), (1, 2.0)]
    assert [score_by(curves[0], seconds, floor=-1.0) for seconds in (0.5, 1.0, 3.9, 8.0)] == [-1.0, 5.0, 5.0, 9.0]


def test_a_report_ranks_trials_with_intervals_over_seeds_and_says_what_mattered(tmp_path: Path) -> None:
    space = {"algorithm.gamma": [0.1, 0.9], "algorithm.gae_lambda": [0.8, 0.9, 0.95]}
    run(tmp_path, FakeBackend(tmp_path, by_gamma), sweep(sweep=space, seeds=[1, 2]))
    report = make_report(SweepFolder(tmp_path, "s"), top=3)
    assert [ranked.trial.values["algorithm.gamma"] for ranked in report.best] == [0.9] * 3
    summary = report.best[0].summary
    assert summary is not None
    assert summary.mean.interval is not None
    assert (summary.count, summary.mean.interval.low) == (2, 0.9 * TOTAL + 1)
    assert report.importances["algorithm.gamma"] > report.importances["algorithm.gae_lambda"]

"""Runs the trials of a sweep: asks for them, starts their runs, watches, prunes, and goes on with what was killed."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from etude.errors import EtudeError, UserError, did_you_mean
from etude.runs.indexed_run import IndexedRun
from etude.runs.run import Run
from etude.runs.run_keys import value_of
from etude.runs.statistics import interquartile_mean, mean
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import Row
from etude.tuning.backend import Backend, Job, JobState
from etude.tuning.plan import Plan
from etude.tuning.spec import ObjectiveConfig
from etude.tuning.study import Study, Trial

POLL_S = 0.5
DONE = ("finished", "stopped")
Outcome = Literal["done", "interrupted", "timeout"]


@dataclass
class Member:
    """One run of a trial, as the sweep sees it."""

    job: Job
    state: Literal["waiting", "running", "done", "failed", "stopped"] = "waiting"
    run: IndexedRun | None = None
    restarts: int = 0
    error: str = ""
    words: tuple[str, ...] = ()
    """Settings to go on with, where they may differ from those of the run so far."""


class SweepRunner:
    """One sitting of a sweep."""

    def __init__(self, plan: Plan, study: Study, backend: Backend, *, n_trials: int | None, timeout_s: float | None) -> None:
        self.plan, self.study, self.backend = plan, study, backend
        self.n_trials = n_trials
        self.members: dict[int, list[Member]] = {}
        """The runs of every trial that runs."""
        self.stopping: Outcome | None = None
        self.began = time.monotonic()
        self._deadline = None if timeout_s is None else self.began + timeout_s
        self._is_exhausted = False
        self._found: dict[tuple[str, int], IndexedRun] = {}
        """Every run of ours as it was last seen, those of earlier sittings among them."""
        left = [trial for trial in study.trials if not trial.ended]
        self._find([plan.job(trial.number, seed, trial.settings) for trial in left for seed in plan.sweep.seeds])
        self._reopened = {plan.group(trial.number) for trial in left if trial.reopened}
        for trial in left:
            self._take_up(trial)
        for member in self._all():
            self._recognise(member)  # what has ended is recorded at once, whether or not there is room or time for more

    @property
    def total(self) -> int | None:
        """How many trials there will be, if that is known."""
        size = self.plan.space.size if self.plan.sweep.method == "grid" else None
        known = [number for number in (self.n_trials, size) if number is not None]
        return min(known) if known else None

    def run(self, show: Callable[[SweepRunner], None] = lambda runner: None) -> Outcome:
        """Run until every trial has ended, the time is over, or somebody asks to stop."""
        with self._signals():
            try:
                while True:
                    self._look()
                    if self._deadline is not None and time.monotonic() > self._deadline and self.stopping is None:
                        self._stop_all("timeout")
                    if self.stopping is None:
                        self._fill()
                    show(self)
                    if not any(member.state == "running" for member in self._all()) and self._is_over():
                        return self.stopping or "done"
                    time.sleep(POLL_S)
            finally:
                self.backend.close()

    # ---- starting ---

    def _is_over(self) -> bool:
        """Whether nothing is left to be started."""
        return self.stopping is not None or not (self._wants_more() or any(member.state == "waiting" for member in self._all()))

    def _wants_more(self) -> bool:
        return not self._is_exhausted and (self.n_trials is None or len(self.study.trials) < self.n_trials)

    def _fill(self) -> None:
        """Start what there is room for: first the runs of trials that have begun, then new trials."""
        while self.backend.has_room(self.plan.needs):
            waiting = next((member for member in self._all() if member.state == "waiting"), None)
            if waiting is not None:
                self._start(waiting)
            elif self._wants_more():
                trial = self.study.ask()
                if trial is None:
                    self._is_exhausted = True
                    return
                self._take_up(trial)
            else:
                return

    def _take_up(self, trial: Trial) -> None:
        jobs = [self.plan.job(trial.number, seed, trial.settings) for seed in self.plan.sweep.seeds]
        self.members[trial.number] = [Member(job) for job in jobs]

    def _find(self, jobs: Sequence[Job]) -> None:
        """Look for runs that an earlier sitting has begun."""
        if jobs:
            self._found |= {key: state.run for key, state in self.backend.poll(jobs).items() if state.run is not None}

    def _start(self, member: Member) -> None:
        found = self._found.get(member.job.key)
        if found is not None and found.status == "running":
            member.run, member.state = found, "running"  # of an earlier sitting, and about to save itself
        elif not self._recognise(member):
            if found is None:
                self.backend.start(member.job)
            else:
                self.backend.resume(member.job, found, member.words)
            member.state = "running"

    def _recognise(self, member: Member) -> bool:
        """Take in how a run of an earlier sitting has ended, if it has; returns whether it had."""
        found = self._found.get(member.job.key)
        if found is not None and _is_done(member.job, found):
            member.run, member.state = found, "done"
        elif found is not None and found.status == "failed" and member.job.group not in self._reopened:
            member.run, member.state, member.error = found, "failed", _why_failed(found)
        else:
            return False
        return True

    # ---- watching ---

    def _all(self) -> Iterator[Member]:
        for members in self.members.values():
            yield from members

    def _look(self) -> None:
        jobs = [member.job for member in self._all() if member.state == "running"]
        states = self.backend.poll(jobs) if jobs else {}
        for member in self._all():
            if member.state == "running":
                self._update(member, states[member.job.key])
        for number in list(self.members):
            self._judge(self.study.trials[number], self.members[number])

    def _update(self, member: Member, now: JobState) -> None:
        if now.run is not None:
            member.run = self._found[member.job.key] = now.run
        if now.state == "running" or (now.state == "unknown" and now.run is not None and now.run.status == "running"):
            return
        if now.run is not None and _is_done(member.job, now.run) and now.code in (0, 130, None):
            member.state = "done"
        elif self.stopping is not None:
            member.state = "stopped"
        elif now.code is not None and now.code > 0 and now.code != 130:
            member.state, member.error = "failed", now.complaint.removeprefix("etude: ")
        elif member.restarts < self.plan.sweep.retries:
            # Killed, or stopped by somebody: it goes on from its last save.
            member.restarts += 1
            member.state = "waiting"
        else:
            times = f"{member.restarts + 1} times"
            member.state, member.error = "failed", f"ended by {_signal_name(now.code)} {times}; retries={member.restarts}"

    def _judge(self, trial: Trial, members: Sequence[Member]) -> None:
        """End a trial whose runs have ended, or that the pruner gives up."""
        facts = self._facts(members)
        failed = [member for member in members if member.state == "failed"]
        if failed:
            self._release(trial)
            self.study.fail(trial, failed[0].error, **facts)
        elif all(member.state == "done" for member in members):
            objective = [
                statistic([self._value(member, each) for member in members], each) for each in self.plan.sweep.objective
            ]
            self._report(trial, members)
            del self.members[trial.number]
            self.study.complete(trial, objective, **facts)
        elif self.stopping is None and self._report(trial, members):
            self._release(trial)
            self.study.prune(trial, **facts)

    def _release(self, trial: Trial) -> None:
        """Let go of a trial whose other runs don't matter any more: they save themselves, and could be resumed by hand."""
        for member in self.members.pop(trial.number):
            if member.state == "running":
                self.backend.stop(member.job)

    def _report(self, trial: Trial, members: Sequence[Member]) -> bool:
        """Report every evaluation that all seeds have had; returns whether the trial should end here."""
        if self.plan.sweep.pruner.type == "off":
            return False
        objective = self.plan.sweep.objective[0]
        curves = [self._evaluations(member, objective.metric) for member in members]
        prune = False
        for step in range(len(trial.reports), min(map(len, curves))):
            prune = self.study.report(trial, step + 1, statistic([curve[step] for curve in curves], objective))
        return prune

    def _evaluations(self, member: Member, metric: str) -> list[float]:
        return [row[metric] for row in rows_so_far(member.run) if metric in row]

    def _value(self, member: Member, objective: ObjectiveConfig) -> float:
        assert member.run is not None
        found = value_of(member.run, objective.metric)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
        known = sorted(member.run.metrics)
        near = did_you_mean(objective.metric, known) or f" (there are: {', '.join(known[:12])}, ...)"
        raise UserError(f"objective.metric={objective.metric}: run {member.run.id} has no such metric{near}")

    def _facts(self, members: Sequence[Member]) -> dict[str, Any]:
        runs = {str(member.job.seed): member.run for member in members if member.run is not None}
        metric = self.plan.sweep.objective[0].metric
        return {
            "runs": {seed: run.id for seed, run in runs.items()},
            "seeds": {seed: value_of(run, metric) for seed, run in runs.items()},
            "seconds": sum(run.elapsed_s or 0.0 for run in runs.values()),
            "env_steps": sum(run.env_steps or 0 for run in runs.values()),
        }

    # ---- stopping ---

    def _stop_all(self, outcome: Outcome) -> None:
        self.stopping = self.stopping or outcome
        for member in self._all():
            if member.state == "running":
                self.backend.stop(member.job)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """On SIGINT, SIGTERM and SIGHUP the runs save themselves and stop, a second time at once."""
        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, lambda number, frame: self._stop_all("interrupted")) for number in asked}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _is_done(job: Job, run: IndexedRun) -> bool:
    """Whether a run has come to its end, or to its pause."""
    paused = job.pause_at is not None and run.status == "interrupted" and (run.env_steps or 0) >= job.pause_at
    return paused or run.status in DONE


def _why_failed(run: IndexedRun) -> str:
    """Return what a run that failed said of it."""
    with suppress(EtudeError, OSError):
        if reason := Run.open(run.path).record.get("stop_reason"):
            return str(reason)
    return f"run {run.id} failed"


def rows_so_far(run: IndexedRun | None) -> list[Row]:
    """Return the rows of a run that may be writing one just now."""
    if run is None or not (run.path / "metrics.jsonl").exists():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a last line that is not whole yet
        return read_rows(run.path / "metrics.jsonl")


def statistic(values: Sequence[float], objective: ObjectiveConfig) -> float:
    """Return what the seeds of a trial come to."""
    import numpy as np

    scores = np.sort(np.asarray(values, dtype=np.float64))
    measures = {"mean": mean, "iqm": interquartile_mean, "median": np.median, "min": np.min, "max": np.max}
    return float(measures[objective.statistic](scores))


def _signal_name(code: int | None) -> str:
    try:
        return signal.Signals(-(code or 0)).name
    except ValueError:
        return "a signal"

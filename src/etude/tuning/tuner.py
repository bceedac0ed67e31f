"""Runs the trials of `etude tune`: short runs first, the promising ones continued by exact resume, the best confirmed.

It is successive halving without waste (ASHA, Li et al. 2020, with runs that pause instead of ending): whenever there is room,
one of the best third of a rung that has not gone on yet goes on; if there is none, a new trial begins. The first trial has the
defaults, and is trained to its end whatever it does: it is what the others are held against.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from etude.tuning.backend import Backend
from etude.tuning.cost_search import CostAwareSearch, Point, points_of
from etude.tuning.plan import Plan
from etude.tuning.runner import Member, SweepRunner, rows_so_far, statistic
from etude.tuning.spec import TuneConfig
from etude.tuning.study import Study, Trial

SHARE_FOR_NEW = 0.75
"""Of a budget in steps or seconds, what new trials may begin in; the rest is for those that go on."""


class TuneRunner(SweepRunner):
    """One sitting of a search that continues short runs."""

    def __init__(self, plan: Plan, study: Study, backend: Backend, *, n_trials: int | None, timeout_s: float | None) -> None:
        assert plan.sweep.tune is not None
        self.tune: TuneConfig = plan.sweep.tune
        budget = plan.compose({}).config.training.total_steps
        self.rungs = [max(1, round(share * budget)) for share in self.tune.rungs]
        if isinstance(study.searcher, CostAwareSearch):
            study.searcher.trials = lambda: study.trials
        self._finals: list[Trial] | None = None
        super().__init__(plan, study, backend, n_trials=n_trials, timeout_s=timeout_s)

    @property
    def total(self) -> int | None:
        """How many trials there will be, if that is known."""
        return self.n_trials

    @property
    def env_steps(self) -> int:
        """Environment steps of the search so far, all runs together."""

        def steps(trial: Trial) -> int:
            running = [member.run.env_steps or 0 for member in self.members.get(trial.number, ()) if member.run is not None]
            return max([int(trial.facts.get("env_steps", 0)), *running])

        return sum(map(steps, self.study.trials))

    # ---- starting ---

    def _take_up(self, trial: Trial) -> None:
        """Begin, or go on with, a trial's rung; one that waits at a rung has nothing to do."""
        rung = self._rung(trial)
        if len(trial.reports) > rung:
            return
        pause = self.rungs[rung] if rung < len(self.rungs) - 1 else None
        job = self.plan.job(trial.number, self.plan.sweep.seeds[0], trial.settings, pause)
        self.members[trial.number] = [Member(job)]

    def _fill(self) -> None:
        while self.backend.has_room(self.plan.needs):
            waiting = next((member for member in self._all() if member.state == "waiting"), None)
            if waiting is not None:
                self._start(waiting)
            elif (promoted := self._next_promoted()) is not None:
                self.study.note(promoted, rung=self._rung(promoted) + 1)
                self._take_up(promoted)
            elif self._wants_more():
                trial = self.study.ask({} if not self.study.trials else None)
                assert trial is not None
                self._take_up(trial)
            elif (not self.members and not self._begin_final()) or (
                self.members and all(member.state != "waiting" for member in self._all())
            ):
                return

    def _is_over(self) -> bool:
        if self.stopping is not None:
            return True
        nothing_runs = not self.members and self._next_promoted() is None and not self._wants_more()
        return nothing_runs and self._finals == []

    def _wants_more(self) -> bool:
        if self._finals is not None or self._spent() >= SHARE_FOR_NEW:
            return False
        return self.n_trials is None or len(self.study.trials) < self.n_trials

    def _spent(self) -> float:
        """The share of the budget, in steps or seconds, that is spent."""
        shares = [0.0]
        if self.tune.total_steps is not None:
            shares.append(self.env_steps / self.tune.total_steps)
        if self._deadline is not None:
            shares.append((time.monotonic() - self.began) / max(1e-9, self._deadline - self.began))
        return max(shares)

    def _rung(self, trial: Trial) -> int:
        return int(trial.facts.get("rung", 0))

    def _next_promoted(self) -> Trial | None:
        """The trial that should go on to its next rung, if one should."""
        if self._finals is not None:
            return None
        sign = 1 if self.study.directions[0] == "max" else -1
        closing = not self._wants_more()
        for rung in reversed(range(len(self.rungs) - 1)):
            reached = [trial for trial in self.study.trials if rung + 1 in trial.reports and trial.values]
            alive = [trial for trial in self.study.trials if not trial.ended]
            waits = [trial for trial in alive if len(trial.reports) == rung + 1 > self._rung(trial)]
            defaults = next((trial for trial in waits if not trial.values), None)
            if defaults is not None:
                return defaults
            count = len(reached) // self.tune.reduction
            if closing and not any(self._rung(self.study.trials[index]) <= rung for index in self.members):
                count = max(1, count)  # nobody comes to this rung any more: one of it goes on, however few they are
            if self._spent() >= 1 and any(trial.objective is not None and trial.values for trial in self.study.trials):
                count = 0
            top = sorted(reached, key=lambda trial: sign * trial.reports[rung + 1], reverse=True)[:count]
            found = next((trial for trial in top if trial in waits), None)
            if found is not None:
                return found
        return None

    # ---- watching ---

    def _judge(self, trial: Trial, members: Sequence[Member]) -> None:
        if self._finals is not None:
            self._judge_final(trial, members)
            return
        member = members[0]
        if member.state == "failed":
            del self.members[trial.number]
            self.study.fail(trial, member.error, **self._facts(members))
        elif member.state == "done":
            objective = self.plan.sweep.objective[0]
            points = self._points(member, objective.metric)
            value = self._value(member, objective)
            facts = {**self._facts(members), "points": points}
            del self.members[trial.number]
            self.study.note(trial, **facts)
            rung = self._rung(trial)
            if rung < len(self.rungs) - 1:
                self.study.report(trial, rung + 1, value)
            else:
                self.study.complete(trial, [value], **facts)

    def _points(self, member: Member, metric: str) -> list[Point]:
        rows = [row for row in rows_so_far(member.run) if metric in row]
        return [Point(row.get("time/elapsed_s", 0.0), int(row["env_steps"]), row[metric]) for row in rows]

    # ---- the finals ---

    def _begin_final(self) -> bool:
        """End the search, and train the best with the other seeds; returns whether there is something to train."""
        if self._finals is None:
            for trial in self.study.trials:
                if not trial.ended:
                    self.study.prune(trial)
            best = [trial for trial in self.study.best() if trial.values][: self.tune.finalists]
            defaults = [trial for trial in self.study.trials if not trial.values and trial.objective is not None]
            others = self.plan.sweep.seeds[1:]
            self._finals = [trial for trial in (*best, *defaults) if others and best and "final" not in trial.facts]
            for trial in self._finals:
                jobs = [self.plan.job(trial.number, seed, trial.settings) for seed in others]
                self.members[trial.number] = [Member(job) for job in jobs]
            self._find([member.job for member in self._all()])
        return bool(self.members)

    def _judge_final(self, trial: Trial, members: Sequence[Member]) -> None:
        assert self._finals is not None
        if not all(member.state in ("done", "failed") for member in members):
            return
        del self.members[trial.number]
        self._finals.remove(trial)
        found = self._facts([member for member in members if member.state == "done"])
        objective = self.plan.sweep.objective[0]
        seeds = {**trial.facts["seeds"], **found["seeds"]}
        failed = [member for member in members if member.state == "failed"]
        value = statistic([float(value) for value in seeds.values()], objective)
        problem = {} if not failed else {"final_error": failed[0].error}
        runs = {**trial.facts["runs"], **found["runs"]}
        self.study.note(trial, final=value, seeds=seeds, runs=runs, **problem)


def curves(study: Study) -> dict[int, list[Point]]:
    """Return the points of every trial that has some."""
    return {trial.number: points for trial in study.trials if (points := points_of(trial))}

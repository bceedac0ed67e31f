"""Population-based training (Jaderberg et al. 2017), with exact copies: runs side by side, the worst go on from the best.

All members train to the next comparison and pause. Each of the worst ends there, and a new trial takes its place: a copy of the
exact state of one of the best (weights, optimiser, buffers, random streams) that goes on with changed settings. Every run is of
one trial, and its rows reach back to the beginning, through those it was copied from.

Comparisons wait for all members, and what is copied and changed follows from the journal and the seed alone. So a search that
was killed, wherever, comes to the end of one that never was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from etude.runs.clone import clone_run
from etude.runs.run import Run
from etude.tuning.backend import Backend
from etude.tuning.plan import Plan, swept_words
from etude.tuning.runner import DONE, Member, SweepRunner
from etude.tuning.space import Choices, Dimension, Range, Space, Values, stream
from etude.tuning.spec import PbtConfig
from etude.tuning.study import Study, Trial


class PopulationRunner(SweepRunner):
    """One sitting of a population."""

    def __init__(self, plan: Plan, study: Study, backend: Backend, *, n_trials: int | None, timeout_s: float | None) -> None:
        assert n_trials is not None
        self.population, self.pbt, self._seed = n_trials, plan.sweep.pbt, plan.sweep.seeds[0]
        total = plan.compose({}).config.training.total_steps
        self.pauses: list[int | None] = [*range(plan.interval, total, plan.interval), None]
        """Where each round ends; the last at the end of the budget."""
        super().__init__(plan, study, backend, n_trials=n_trials, timeout_s=timeout_s)

    @property
    def total(self) -> int | None:
        """Unknown: every copy is a trial too."""
        return None

    # ---- starting ---

    def _take_up(self, trial: Trial) -> None:
        """Nothing yet: rounds begin for all members together."""

    def _is_over(self) -> bool:
        if self.stopping is not None:
            return True
        return len(self.study.trials) >= self.population and all(trial.ended for trial in self.study.trials)

    def _fill(self) -> None:
        while self.backend.has_room(self.plan.needs):
            waiting = next((member for member in self._all() if member.state == "waiting"), None)
            if waiting is not None:
                self._start(waiting)
            elif not self.members and self._begin_round():
                continue
            elif len(self.study.trials) < self.population:
                trial = self.study.ask()
                assert trial is not None
                self._join(trial)
            else:
                return

    def _begin_round(self) -> bool:
        """Let every member that has not come to the end of the round go on; returns whether there is one."""
        alive = [trial for trial in self.study.trials if not trial.ended]
        if not alive:
            return False
        # Until all have been asked for, it is the first round.
        now = min(map(_rounds, alive)) if len(self.study.trials) >= self.population else 0
        if now > 0:
            self._exploit(now)
        for trial in self.study.trials:
            if not trial.ended and _rounds(trial) == now:
                self._join(trial)
        return bool(self.members)

    def _join(self, trial: Trial) -> None:
        job = self.plan.job(trial.number, self._seed, trial.settings, self.pauses[_rounds(trial)])
        words = swept_words(trial.settings) if "copy_of" in trial.facts else ()
        self.members[trial.number] = [Member(job, words=tuple(words))]

    # ---- comparing ---

    def _exploit(self, rounds: int) -> None:
        """Give up the worst after this many rounds and copy the best in their place.

        Called again after a kill, it does what is left of it: nobody goes on before all of it is done.
        """
        sign = 1 if self.study.directions[0] == "max" else -1
        compared = [trial for trial in self.study.trials if rounds in trial.reports]
        ranked = sorted(compared, key=lambda trial: (-sign * trial.reports[rounds], trial.number))
        count = min(max(1, int(len(ranked) * self.pbt.quantile)), len(ranked) // 2)
        for loser in ranked[len(ranked) - count :]:
            draws = stream(self.plan.sweep.seed, loser.number, f"copies/{rounds}")
            source = draws.choice(ranked[:count])
            if sign * loser.reports[rounds] >= sign * source.reports[rounds]:
                continue
            if not any(trial.facts.get("replaces") == loser.number for trial in self.study.trials):
                if loser.ended or source.ended or _rounds(source) > rounds:
                    continue  # one that failed and was tried again comes late: the others have gone on
                self._copy(source, loser, rounds)
            if not loser.ended:
                self.study.prune(loser)
        self._make_runs()

    def _copy(self, source: Trial, loser: Trial, rounds: int) -> None:
        run = source.facts["runs"][str(self._seed)]
        saved = Run.open(self.backend.root / run).checkpoints().newest_whole().name
        draws = stream(self.plan.sweep.seed, len(self.study.trials), "changes")
        values = perturbed(self.plan.space, source.values, self.pbt, draws)
        lineage = {"copy_of": source.number, "source": run, "checkpoint": saved, "replaces": loser.number}
        self.study.ask(values, rounds=rounds, **lineage)

    def _make_runs(self) -> None:
        """Make the runs of copies that have none yet."""
        copies = [trial for trial in self.study.trials if not trial.ended and "copy_of" in trial.facts]
        jobs = {trial.number: self.plan.job(trial.number, self._seed, trial.settings) for trial in copies}
        self._find(list(jobs.values()))
        made = [trial for trial in copies if jobs[trial.number].key not in self._found]
        for trial in made:
            source = Run.open(self.backend.root / trial.facts["source"])
            clone_run(source, self.backend.root, group=jobs[trial.number].group, checkpoint=trial.facts["checkpoint"])
        self._find([jobs[trial.number] for trial in made])

    # ---- watching ---

    def _judge(self, trial: Trial, members: Sequence[Member]) -> None:
        member = members[0]
        if member.state not in ("failed", "done"):
            return
        facts = self._facts(members)
        del self.members[trial.number]
        if member.state == "failed":
            self.study.fail(trial, member.error, **facts)
            return
        value = self._value(member, self.plan.sweep.objective[0])
        assert member.run is not None
        if member.run.status in DONE or not math.isfinite(value):
            self.study.complete(trial, [value], **facts)
        else:
            self.study.note(trial, **facts)
            self.study.report(trial, _rounds(trial) + 1, value)


def _rounds(trial: Trial) -> int:
    """How many rounds a member has behind it, those of whom it was copied from included."""
    return max([int(trial.facts.get("rounds", 0)), *trial.reports])


def perturbed(space: Space, values: Values, pbt: PbtConfig, draws: Random) -> Values:
    """Return values near these: every key is drawn anew, or changed a little within its bounds."""
    found = {}
    for key, dimension in space.searched.items():
        anew = draws.random() < pbt.resample
        found[key] = dimension.draw(draws) if anew else _nearby(dimension, values[key], pbt, draws)
    return found


def _nearby(dimension: Dimension, value: object, pbt: PbtConfig, draws: Random) -> object:
    if isinstance(dimension, Choices):
        place = dimension.values.index(value) + draws.choice((-1, 1))
        return dimension.values[min(max(place, 0), len(dimension.values) - 1)]
    assert isinstance(value, int | float)
    factor = draws.choice(pbt.factors)
    return _scaled(dimension, float(value), factor)


def _scaled(dimension: Range, value: float, factor: float) -> object:
    found = min(max(value * factor, dimension.low), dimension.high)
    step = dimension.step or (1.0 if dimension.integer else None)
    if step is None:
        return dimension.tidy(found)
    # On the grid of its steps, and at least one step away.
    steps = round((found - dimension.low) / step)
    here = round((value - dimension.low) / step)
    if steps == here and factor != 1:
        steps += 1 if factor > 1 else -1
    most = math.floor((dimension.high - dimension.low) / step + 1e-9)
    return dimension.tidy(dimension.low + step * min(max(steps, 0), most))

"""One search, whatever is searched: trials are asked for, reported on and ended, and every step of it is in a journal.

It serves runs (`etude sweep`) and plain Python functions alike. Opened again after a kill it stands where it stood: trials that
had not ended are running still, for whoever runs them to go on with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from etude.errors import EtudeError, UserError
from etude.tuning.journal import Journal
from etude.tuning.space import Space, Values

VERSION = 1
State = Literal["running", "complete", "pruned", "failed"]
Direction = Literal["max", "min"]


class Searcher(Protocol):
    """Who proposes trials, and learns from how they ended."""

    def suggest(self, number: int) -> Values | None:
        """Return the values of a new trial, None when there are no more."""
        ...

    def put_back(self, number: int, values: Values) -> None:
        """Take in a trial that an earlier sitting asked for."""
        ...

    def report(self, number: int, step: int, value: float) -> bool:
        """Take in a value on the way; returns whether the trial should end here."""
        ...

    def end(self, number: int, state: State, objective: Sequence[float] | None) -> None:
        """Take in how a trial ended."""
        ...


@dataclass
class Trial:
    """One proposal, and what came of it."""

    number: int
    values: Values
    """What was proposed."""
    settings: Values
    """What was proposed, with everything that follows from it."""
    state: State = "running"
    objective: tuple[float, ...] | None = None
    error: str = ""
    reports: dict[int, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """What else is known: seconds, the values of single seeds, run ids."""
    reopened: bool = False
    """Whether it failed once, and was asked to run again."""

    @property
    def first_objective(self) -> float | None:
        """What it came to in the first objective, if it is complete."""
        return None if self.objective is None else self.objective[0]

    @property
    def result(self) -> tuple[float, ...] | None:
        """What it came to in the end: by all seeds where the finals of `etude tune` have been, else its objective."""
        return (self.facts["final"],) if "final" in self.facts else self.objective

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state != "running"


class Study:
    """Trials of one space, in the order in which they were asked for."""

    def __init__(
        self,
        space: Space,
        searcher: Searcher,
        directions: Sequence[Direction] = ("max",),
        *,
        seed: int = 0,
        journal: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        others: Callable[[str], Any] | None = None,
        durable: bool = True,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.space, self.searcher, self.directions, self.seed = space, searcher, tuple(directions), seed
        self.trials: list[Trial] = []
        self._others = others or _unknown
        self._journal = None if journal is None else Journal(journal, durable=durable)
        if self._journal is not None:
            self._restore(self._journal, dict(identity or {}))
        for event in events[1:]:  # of a journal that only is looked at
            self._apply(event)

    def ask(self, values: Values | None = None, **facts: Any) -> Trial | None:
        """Return a new trial with these values ({}: the defaults), or with those that the searcher proposes; or None."""
        with self._caught_up():
            return self._ask(values, facts)

    def _ask(self, values: Values | None, facts: dict[str, Any]) -> Trial | None:
        number = len(self.trials)
        if values is None:
            values = self.searcher.suggest(number)
            if values is None:
                return None
        else:
            self.searcher.put_back(number, values)
        # Without a value it is the defaults, from which nothing is derived.
        is_default = bool(self.space.searched) and not values
        settings = {} if is_default else self.space.complete(values, self.seed, number, self._others)
        known = {"facts": facts} if facts else {}
        self._write(event="asked", trial=number, values=values, settings=settings, **known)
        trial = Trial(number, values, settings, facts=facts)
        self.trials.append(trial)
        return trial

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """Take in a value on the way; returns whether the trial should end here. Each step counts once."""
        if step in trial.reports or not math.isfinite(value):
            return False
        with self._caught_up():
            self._write(event="report", trial=trial.number, step=step, value=value)
            trial.reports[step] = value
            return self.searcher.report(trial.number, step, value)

    def complete(self, trial: Trial, objective: Sequence[float], **facts: Any) -> None:
        """End a trial with what it came to; NaN or infinity is a failure."""
        wrong = [value for value in objective if not math.isfinite(value)]
        if wrong:
            self.fail(trial, f"its objective is {wrong[0]}", **facts)
        else:
            self._end(trial, "complete", tuple(float(value) for value in objective), "", facts)

    def prune(self, trial: Trial, **facts: Any) -> None:
        """End a trial that others have outdone."""
        self._end(trial, "pruned", None, "", facts)

    def fail(self, trial: Trial, error: str, **facts: Any) -> None:
        """End a trial that went wrong, and keep what it said."""
        self._end(trial, "failed", None, error, facts)

    def note(self, trial: Trial, **facts: Any) -> None:
        """Keep something more that is known of a trial."""
        with self._caught_up():
            self._write(event="noted", trial=trial.number, facts=facts)
        trial.facts = {**trial.facts, **facts}

    def reopen(self, trial: Trial) -> None:
        """Let a trial that failed run again."""
        with self._caught_up():
            self._write(event="reopened", trial=trial.number)
        trial.state, trial.error, trial.reopened = "running", "", True

    def best(self, count: int | None = None) -> list[Trial]:
        """Return complete trials, the best first; of several objectives those that nothing beats, by the first objective.

        Those that all seeds have judged come before those of a single one.
        """
        done = [trial for trial in self.trials if trial.objective is not None]
        if len(self.directions) > 1:
            done = [trial for trial in done if not any(self._dominates(other, trial) for other in done)]
        done.sort(key=lambda trial: ("final" in trial.facts, self._signed(trial)[0]), reverse=True)
        return done[:count]

    def _signed(self, trial: Trial) -> list[float]:
        """The objective with more as better."""
        assert trial.result is not None
        return [value if way == "max" else -value for value, way in zip(trial.result, self.directions, strict=True)]

    def _dominates(self, one: Trial, other: Trial) -> bool:
        pairs = list(zip(self._signed(one), self._signed(other), strict=True))
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)

    def _end(self, trial: Trial, state: State, objective: tuple[float, ...] | None, error: str, facts: dict[str, Any]) -> None:
        with self._caught_up():
            if trial.ended:
                raise EtudeError(f"trial {trial.number} has ended already ({trial.state})")
            event = {"event": "ended", "trial": trial.number, "state": state, "objective": objective, "error": error}
            self._write(**event, facts=facts)
            trial.state, trial.objective, trial.error, trial.facts = state, objective, error, {**trial.facts, **facts}
            self.searcher.end(trial.number, state, objective)

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the journal, with all that other processes have written to it taken in."""
        if self._journal is None:
            yield
            return
        with self._journal.held() as added:
            for event in added:
                self._apply(event)
            yield

    def _write(self, **event: Any) -> None:
        if self._journal is not None:
            self._journal.write(event)

    def _restore(self, journal: Journal, identity: dict[str, Any]) -> None:
        with journal.held() as added:  # of whoever began it at the same moment
            journal.events += added
            self._begin_or_continue(journal, identity)

    def _begin_or_continue(self, journal: Journal, identity: dict[str, Any]) -> None:
        if not journal.events:
            self._write(event="search", version=VERSION, identity=identity, directions=list(self.directions))
            return
        first = journal.events[0]
        if first.get("event") != "search" or first.get("version") != VERSION:
            raise EtudeError(f"{journal.path}: not a journal that this Etude can read")
        if changed := differing(first["identity"], identity):
            raise ChangedError(", ".join(changed))
        for event in journal.events[1:]:
            self._apply(event)

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, number = event["event"], event["trial"]
        if kind == "asked":
            self.trials.append(Trial(number, event["values"], event["settings"], facts=dict(event.get("facts", {}))))
            self.searcher.put_back(number, event["values"])
            return
        trial = self.trials[number]
        if kind == "report":
            trial.reports[event["step"]] = event["value"]
            self.searcher.report(number, event["step"], event["value"])
        elif kind == "ended":
            objective = event["objective"]
            trial.state, trial.error = event["state"], event["error"]
            trial.facts = {**trial.facts, **event["facts"]}
            trial.objective = None if objective is None else tuple(objective)
            self.searcher.end(number, trial.state, trial.objective)
        elif kind == "noted":
            trial.facts = {**trial.facts, **event["facts"]}
        elif kind == "reopened":
            trial.state, trial.error, trial.reopened = "running", "", True


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return what differs between the identities of two searches."""
    return [key for key in sorted({*one, *other}) if one.get(key) != other.get(key)]


class ChangedError(UserError):
    """A journal is of another search; the message names what differs."""


def _unknown(key: str) -> Any:
    raise UserError(f"{key} is not among the keys that are searched")

"""Proposals that mind what a run costs: every evaluation is a point, seconds and score, and the aim moves along the seconds.

For each proposal a time T is chosen, in turn from short to long. A trial counts by what its run had reached by then, so a slow
and a fast one are compared as somebody would who waits for T. Optuna's TPE then proposes. What comes of it is a front: the best
for ten seconds, for a minute, for ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from etude.tuning.optuna_search import OptunaSearch
from etude.tuning.space import Space, Values
from etude.tuning.spec import SamplerConfig
from etude.tuning.study import Direction, State, Trial

AIMS = (1.0, 0.5, 0.75)
"""Where T lies between the shortest and the longest time seen, on a logarithmic axis, in turn."""


class Point(NamedTuple):
    """What a run had reached after some time."""

    seconds: float
    env_steps: int
    score: float


def points_of(trial: Trial) -> list[Point]:
    """Return the points that are noted of a trial."""
    return [Point(*point) for point in trial.facts.get("points", ())]


class CostAwareSearch:
    """Proposes trials from the points of all others; `trials` says which there are."""

    def __init__(self, space: Space, direction: Direction, *, seed: int, startup_trials: int) -> None:
        self._space, self._seed, self._startup = space, seed, startup_trials
        self._direction: Direction = direction
        self.trials: Callable[[], Sequence[Trial]] = tuple

    def suggest(self, number: int) -> Values:
        """Propose by TPE, from what every run had reached by a time."""
        known = [(trial, points) for trial in self.trials() if trial.values and (points := points_of(trial))]
        if len(known) < self._startup:
            return self._space.draw(self._seed, number)
        by = self._aim(number, [points for _, points in known])
        sampler = SamplerConfig(startup_trials=1)
        directions: list[Direction] = [self._direction]
        search = OptunaSearch(self._space, directions, seed=self._seed + number, sampler=sampler)
        worst = [point.score for _, points in known for point in points]
        floor = min(worst) if self._direction == "max" else max(worst)
        for place, (trial, points) in enumerate(known):
            search.put_back(place, trial.values)
            search.end(place, "complete", [score_by(points, by, floor)])
        under_way = [trial for trial in self.trials() if trial.values and not trial.ended and not points_of(trial)]
        for place, trial in enumerate(under_way, start=len(known)):
            search.put_back(place, trial.values)  # so that several at once don't try the same
        proposed = search.suggest(len(known) + len(under_way))
        assert proposed is not None
        return proposed

    def put_back(self, number: int, values: Values) -> None:
        """Nothing is remembered here."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Rungs decide, not this."""
        return False

    def end(self, number: int, state: State, objective: Sequence[float] | None) -> None:
        """Nothing is remembered here."""

    def _aim(self, number: int, curves: Sequence[Sequence[Point]]) -> float:
        ends = [math.log(max(points[-1].seconds, 1e-3)) for points in curves]
        return math.exp(min(ends) + AIMS[number % len(AIMS)] * (max(ends) - min(ends)))


def score_by(points: Sequence[Point], seconds: float, floor: float) -> float:
    """Return what a run had reached by a time: its last evaluation until then, the worst of all before its first."""
    reached = [point.score for point in points if point.seconds <= seconds * (1 + 1e-9)]
    return reached[-1] if reached else floor


def front(curves: dict[int, list[Point]], direction: Direction) -> list[tuple[int, Point]]:
    """Return the points that nothing cheaper or as cheap beats, cheapest first, each with its trial."""
    sign = 1.0 if direction == "max" else -1.0
    points = [(number, point) for number, curve in curves.items() for point in curve if math.isfinite(point.score)]
    points.sort(key=lambda pair: (pair[1].seconds, -sign * pair[1].score))
    kept: list[tuple[int, Point]] = []
    for number, point in points:
        if not kept or sign * point.score > sign * kept[-1][1].score:
            kept.append((number, point))
    return kept

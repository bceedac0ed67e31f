"""The comparison itself: what each group of runs came to, and which is likely to be higher."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from etude.comparison.config_diff import Difference, code_differences, config_differences, package_differences
from etude.comparison.curves import AXES, Band, Curve, apart_or_together, combine, smoothed
from etude.comparison.direction import lowest_is_best
from etude.comparison.groups import Group, make_groups
from etude.comparison.members import Member, read_member
from etude.errors import UserError, did_you_mean
from etude.runs.statistics import Estimate, Summary, interquartile_mean, mean, probability_of_improvement, summarise

# What is compared if nothing is asked and no one metric is monitored: the first that any run has.
USUAL_METRICS = ("eval/return_mean", "collect/return_mean", "train/loss")
_RETURNS = ("eval/return_mean", "collect/return_mean", "eval/sample_return_mean", "eval/greedy_return_mean")
_RETURNS += ("eval/mode_return_mean",)  # what older runs call the last one
AGGREGATES = {"mean": mean, "iqm": interquartile_mean}


@dataclass(frozen=True)
class Result:
    """One metric of one group, each run taken at its end or where the comparison says."""

    group: Group
    metric: str
    values: dict[str, float]
    """By run id; a run that ended with NaN has it here and is not in the summary."""
    summary: Summary | None
    best: float | None
    """The best value of any run at any time: the highest, or the lowest where `lowest_is_best`."""
    lowest_is_best: bool = False
    missing: tuple[str, ...] = ()
    """Runs that never logged it."""
    threshold: float | None = None
    """The return at which the environment counts as solved."""

    @property
    def not_finite(self) -> int:
        """How many runs stood at NaN or infinity."""
        return sum(not math.isfinite(value) for value in self.values.values())


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method is higher in a metric than a run of another."""

    metric: str
    first: str
    second: str
    environments: tuple[str, ...]
    probability: Estimate


@dataclass(frozen=True)
class Comparison:
    """Runs side by side."""

    groups: list[Group]
    metrics: list[str]
    axis: str
    aggregate: str
    smooth: float
    limit: float | None
    """The position at which values were taken; None: each run's own end."""
    results: list[Result] = field(default_factory=list)
    improvements: list[Improvement] = field(default_factory=list)
    settings: list[Difference] = field(default_factory=list)
    code: list[Difference] = field(default_factory=list)
    packages: list[Difference] = field(default_factory=list)
    _bands: dict[tuple[str, str], Band] = field(default_factory=dict, repr=False, compare=False)

    @property
    def environments(self) -> list[str]:
        """Every environment, in the order of the groups: their values have different scales."""
        return list(dict.fromkeys(group.environment for group in self.groups))

    @property
    def members(self) -> list[Member]:
        """Every run, group by group."""
        return [member for group in self.groups for member in group.members]

    def of(self, metric: str) -> list[Result]:
        """Return the results of one metric, one for each group."""
        return [result for result in self.results if result.metric == metric]

    def with_metrics(self, metrics: Sequence[str]) -> Comparison:
        """Return the same comparison of these metrics instead."""
        results = [_result(group, metric, self.axis, self.limit) for metric in metrics for group in self.groups]
        return replace(self, metrics=list(metrics), results=results, improvements=_improvements(results), _bands={})

    def band(self, group: Group, metric: str) -> Band:
        """Return a group's curve of a metric with its interval."""
        known = self._bands.get((group.letter, metric))
        if known is None:
            lines = [[self.line(member, metric) for member in part] for part in group.strata()]
            known = self._bands[group.letter, metric] = combine(lines, AGGREGATES[self.aggregate])
        return known

    def line(self, member: Member, metric: str) -> Curve:
        """Return a single run's curve of a metric."""
        width = self.smooth * self._length(metric) if self.smooth else 0.0
        return smoothed(member.curve(metric, self.axis).finite, width)

    def _length(self, metric: str) -> float:
        """Return how far the axis of a metric reaches."""
        return max((line.x[-1] for m in self.members if len((line := m.curve(metric, self.axis)).x)), default=0.0)


def compare(
    paths: Sequence[Path],
    *,
    metrics: Sequence[str] = (),
    by: str | None = None,
    axis: str = "env_steps",
    at: str = "last",
    aggregate: str = "mean",
    smooth: float = 0.0,
) -> Comparison:
    """Compare the runs at these directories.

    `metrics` may hold patterns such as ``train/*``. `at` is ``last``, each run's own end; ``common``, the end of the
    shortest; or a position on the axis. `smooth` is the window of the curves as a share of the axis.
    """
    members = [read_member(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    return compare_members(members, metrics=metrics, by=by, axis=axis, at=at, aggregate=aggregate, smooth=smooth)


def compare_members(
    members: Sequence[Member],
    *,
    metrics: Sequence[str] = (),
    by: str | None = None,
    axis: str = "env_steps",
    at: str = "last",
    aggregate: str = "mean",
    smooth: float = 0.0,
) -> Comparison:
    """Compare runs that have been read, as `compare` does."""
    if not members:
        raise UserError("there is no run to compare")
    groups = make_groups(members, by)
    names = choose_metrics(members, metrics)
    limit = _limit(members, at, axis)
    empty = Comparison(
        groups=groups,
        metrics=[],
        axis=axis,
        aggregate=aggregate,
        smooth=smooth,
        limit=limit,
        settings=config_differences(groups),
        code=code_differences(groups),
        packages=package_differences(groups),
    )
    return empty.with_metrics(names)


def choose_metrics(members: Sequence[Member], wanted: Sequence[str]) -> list[str]:
    """Return the metrics that were asked for, patterns spelled out; one that no run has is an error."""
    known = sorted({name for member in members for name in member.metrics})
    if not known:
        raise UserError("the run has no metrics yet" if len(members) == 1 else f"none of {len(members)} runs has metrics yet")
    if not wanted:
        monitored = {member.facts.best_metric for member in members}
        usual = [*(monitored if len(monitored) == 1 else ()), *USUAL_METRICS]
        return [next((name for name in usual if name in known), known[0])]
    chosen: list[str] = []
    for pattern in wanted:
        found = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            raise UserError(f"--metrics {pattern}: no run has such a metric{did_you_mean(pattern, known)}")
        chosen.extend(found)
    return list(dict.fromkeys(chosen))


def ends(members: Sequence[Member], axis: str) -> dict[str, float]:
    """Return how far each run has come on an axis; a run without rows is left out."""
    position = "time/elapsed_s" if axis == "time" else axis
    reached = {member.id: max((row.get(position, 0.0) for row in member.rows), default=None) for member in members}
    return {run: float(end) for run, end in reached.items() if end is not None}


def _limit(members: Sequence[Member], at: str, axis: str) -> float | None:
    if at == "last":
        return None
    if at == "common":
        return min(ends(members, axis).values(), default=None)
    try:
        limit = float(at)
    except ValueError:
        limit = math.nan
    if not (math.isfinite(limit) and limit > 0):
        raise UserError(f"--at {at}: must be last, common or a number of {AXES[axis]}")
    return limit


def _result(group: Group, metric: str, axis: str, limit: float | None) -> Result:
    lines = [[(member, _part(member, metric, axis, limit)) for member in part] for part in group.strata()]
    values = {member.id: float(line.y[-1]) for part in lines for member, line in part if len(line.y)}
    strata = [np.array([line.y[-1] for _, line in part if len(line.y) and math.isfinite(line.y[-1])]) for part in lines]
    strata = apart_or_together([scores for scores in strata if len(scores)])
    lowest = lowest_is_best(metric, group.members)
    best = min if lowest else max
    seen = [float(best(line.finite.y)) for part in lines for _, line in part if len(line.finite.y)]
    threshold = _threshold(group, metric)
    return Result(
        group,
        metric,
        values=values,
        summary=summarise(strata, threshold=threshold) if strata else None,
        best=best(seen, default=None),
        lowest_is_best=lowest,
        missing=tuple(member.id for member in group.members if member.id not in values),
        threshold=threshold,
    )


def _part(member: Member, metric: str, axis: str, limit: float | None) -> Curve:
    line = member.curve(metric, axis)
    return line if limit is None else line.until(limit)


def _threshold(group: Group, metric: str) -> float | None:
    """Return the return at which the environment counts as solved, if all runs agree on one."""
    if metric not in _RETURNS:
        return None
    keys = ("training.return_threshold", "environment.spec.return_threshold")
    found = [next((m.settings[key] for key in keys if m.settings.get(key) is not None), None) for m in group.members]
    only = found[0] if all(each == found[0] for each in found) else None
    return float(only) if isinstance(only, int | float) else None


def _improvements(results: Sequence[Result]) -> list[Improvement]:
    """Compare every two methods on the environments that both were run on."""
    found = []
    scores: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in results:
        finite = [value for value in result.values.values() if math.isfinite(value)]
        if finite:
            scores.setdefault(result.metric, {}).setdefault(result.group.method, {})[result.group.environment] = finite
    label = {result.group.method: result.group.method_label for result in results}
    for metric, methods in scores.items():
        for first, second in itertools.combinations(methods, 2):
            shared = [environment for environment in methods[first] if environment in methods[second]]
            if shared:
                chance = probability_of_improvement(
                    [methods[first][environment] for environment in shared],
                    [methods[second][environment] for environment in shared],
                )
                found.append(Improvement(metric, label[first], label[second], tuple(shared), chance))
    return found

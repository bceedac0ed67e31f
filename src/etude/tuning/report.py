"""What came of a sweep: the best trials with their statistics over seeds, what mattered, and files to train them again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.config.validate import to_yaml
from etude.errors import EtudeError, MissingPackageError, UserError
from etude.files.atomic import write_text_atomic
from etude.runs.statistics import Summary, summarise
from etude.runs.thresholds import Reached, first_reached
from etude.telemetry.jsonl import read_rows
from etude.telemetry.readable import duration, number
from etude.tuning.places import SweepFolder
from etude.tuning.plan import Plan
from etude.tuning.study import Study, Trial

_FEWEST_FOR_IMPORTANCE = 4


@dataclass(frozen=True)
class Ranked:
    """One of the best trials."""

    trial: Trial
    summary: Summary | None
    """Of the first objective over its seeds."""
    reached: tuple[Reached | None, ...] = ()
    """Where each seed reached the threshold, if one was asked for."""

    @property
    def seconds_to_threshold(self) -> float | None:
        """The mean over seeds; None where one of them never reached it."""
        known = [at.seconds for at in self.reached if at is not None]
        return sum(known) / len(known) if known and len(known) == len(self.reached) else None


@dataclass(frozen=True)
class Report:
    """A sweep as it stands."""

    plan: Plan
    study: Study
    best: list[Ranked]
    importances: dict[str, float]
    notes: list[str]
    threshold: float | None = None

    @property
    def metric(self) -> str:
        """The first objective's."""
        return self.plan.sweep.objective[0].metric


def make_report(folder: SweepFolder, *, top: int = 5, threshold: float | None = None) -> Report:
    """Read a sweep, also while it runs."""
    plan, study = folder.looked_at()
    notes: list[str] = []
    best = [_ranked(folder, plan, trial, threshold) for trial in study.best(top)]
    if not best:
        raise UserError(f"sweep {folder.name}: no trial is complete yet ({_counts(study)})")
    return Report(plan, study, best, _importances(plan, study, notes), notes, threshold)


def _ranked(folder: SweepFolder, plan: Plan, trial: Trial, threshold: float | None) -> Ranked:
    values = [value for value in trial.facts.get("seeds", {}).values() if isinstance(value, int | float)]
    reached: list[Reached | None] = []
    if threshold is not None:
        objective = plan.sweep.objective[0]
        for run in trial.facts.get("runs", {}).values():
            rows = folder.root / run / "metrics.jsonl"
            lowest = objective.direction == "min"
            found = (
                first_reached(read_rows(rows), objective.metric, threshold, lowest_is_best=lowest) if rows.exists() else None
            )
            reached.append(found)
    finite = [value for value in values if math.isfinite(value)]
    return Ranked(trial, summarise([finite]) if finite else None, tuple(reached))


def _importances(plan: Plan, study: Study, notes: list[str]) -> dict[str, float]:
    from etude.tuning.optuna_search import importances

    # Of short runs that were compared at a first rung, that is where there are most of them.
    scores = [(trial, trial.reports.get(1) if plan.sweep.tune is not None else trial.first_objective) for trial in study.trials]
    pairs = [(trial.values, score) for trial, score in scores if score is not None and trial.values]
    varied = {key: dimension for key, dimension in plan.space.searched.items() if len({str(v[key]) for v, _ in pairs}) > 1}
    if len(pairs) < _FEWEST_FOR_IMPORTANCE or len({value for _, value in pairs}) < 2 or not varied:
        notes.append("too few different trials to say which keys mattered")
        return {}
    space = type(plan.space)(varied)
    try:
        return importances(
            space, study.directions[0], [({key: values[key] for key in varied}, value) for values, value in pairs]
        )
    except MissingPackageError as error:
        notes.append(str(error).replace("method bayes and pruners need", "importances need"))
        return {}


def text_lines(report: Report, names: Mapping[str, str]) -> list[str]:
    """Return the report as a table of text."""
    several = any(ranked.summary is not None and ranked.summary.count > 1 for ranked in report.best)
    keys = [*report.plan.space.searched, *report.plan.space.derived]
    columns = ["#", "trial", *(objective.metric for objective in report.plan.sweep.objective)]
    columns += ["95% CI", "seeds"] if several else []
    columns += [f"seconds to {report.threshold:g}"] if report.threshold is not None else []
    columns += ["time", *(names[key] for key in keys)]
    rows = [columns]
    for place, ranked in enumerate(report.best, start=1):
        trial, summary = ranked.trial, ranked.summary
        row = [str(place), f"{trial.number:04d}", *(number(value) for value in trial.result or ())]
        if several:
            interval = None if summary is None else summary.mean.interval
            row += ["-" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"]
            row += [str(summary.count if summary else 0)]
        if report.threshold is not None:
            took = ranked.seconds_to_threshold
            row.append("-" if took is None else f"{took:.1f}")
        row += [duration(float(trial.facts.get("seconds", 0.0))), *(_shown(trial.settings.get(key, "-")) for key in keys)]
        rows.append(row)
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    lines = [f"{report.plan.sweep.name}: {report.plan.sweep.method}, {_counts(report.study)}"]
    if len(report.plan.sweep.objective) > 1:
        lines.append("trials that no other beats in all objectives:")
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if report.importances:
        shares = ", ".join(f"{names[key]} {share:.0%}" for key, share in report.importances.items())
        lines.append(f"what mattered: {shares}")
    return [*lines, *report.notes]


def export_best(report: Report, folder: Path) -> list[Path]:
    """Write each of the best trials as a config file that `etude train --config` takes; returns where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for place, ranked in enumerate(report.best, start=1):
        path = folder / f"{place}.yaml"
        try:
            write_text_atomic(path, preset_text(report, ranked, place))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from None
        except EtudeError as error:
            report.notes.append(f"trial {ranked.trial.number:04d} can't be written as a config: {error}")
            continue
        written.append(path)
    return written


def preset_text(report: Report, ranked: Ranked, place: int) -> str:
    """Return a trial as a config file, with a word on where it is from."""
    trial, sweep = ranked.trial, report.plan.sweep
    asked: dict[str, Any] = report.plan.compose(trial.settings).asked
    asked["experiment"] = {**asked.get("experiment", {}), "name": f"{sweep.name}-{place}"}
    for key in ("seed", "group"):
        asked["experiment"].pop(key, None)
    named = zip(sweep.objective, trial.result or (), strict=False)
    results = ", ".join(f"{objective.metric} {number(value)} ({objective.statistic})" for objective, value in named)
    seeds = ", ".join(trial.facts.get("seeds", {}))
    head = f"# Trial {trial.number:04d} of the sweep {sweep.name}, place {place}: {results}; seeds {seeds}."
    return f"{head}\n#\n#   etude train --config THIS_FILE --seed 1-5\n{to_yaml(asked)}"


def _counts(study: Study) -> str:
    counts = Counter(trial.state for trial in study.trials)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no trial yet"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""What came of `etude tune`: the winner against the defaults, and the front of score against seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.errors import UserError
from etude.runs.statistics import summarise
from etude.telemetry.readable import duration, number
from etude.tuning.cost_search import front
from etude.tuning.report import Report, preset_text
from etude.tuning.study import Trial
from etude.tuning.tuner import curves


def best_preset(report: Report) -> str:
    """Return the winner as a config file."""
    if not report.best:
        raise UserError(f"{report.plan.sweep.name}: no trial is complete")
    return preset_text(report, report.best[0], 1)


def tuned_lines(report: Report, show: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Return the winner, the defaults and the front, a line each."""
    study, metric = report.study, report.metric
    best = report.best[0].trial if report.best else None
    defaults = next((trial for trial in study.trials if not trial.values), None)
    lines = []
    if best is not None:
        lines.append(f"best: trial {best.number:04d}, {_result(best, metric)}: {show(best.settings) or 'the defaults'}")
    if defaults is not None and defaults.objective is not None and defaults is not best:
        lines.append(f"the defaults: {_result(defaults, metric)}")
    steps = sum(int(trial.facts.get("env_steps", 0)) for trial in study.trials)
    seconds = sum(float(trial.facts.get("seconds", 0.0)) for trial in study.trials)
    lines.append(f"the search took {steps:,} environment steps and {duration(seconds)} of training")
    lines.append("score against seconds:")
    for trial, point in front(curves(study), study.directions[0]):
        at = f"at {point.env_steps:,} steps  trial {trial:04d}"
        lines.append(f"  {point.seconds:8.1f} s  {metric} {number(point.score)}  {at}")
    return lines


def _result(trial: Trial, metric: str) -> str:
    seeds = [float(value) for value in trial.facts.get("seeds", {}).values()]
    if len(seeds) < 2:
        return f"{metric} {number((trial.objective or (0.0,))[0])} (1 seed)"
    summary = summarise([seeds])
    interval = summary.mean.interval
    shown = f" [{number(interval.low)}, {number(interval.high)}]" if interval else ""
    return f"{metric} {number(summary.mean.value)}{shown} ({len(seeds)} seeds)"

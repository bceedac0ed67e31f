"""Which curves a report draws of a run, and how."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etude.comparison.curves import Curve, curve
from etude.reporting.chart import Chart, Line, Mark
from etude.reporting.run_material import Material
from etude.telemetry.names import COUNTERS, Row

_MOST_SMALL = 24
_RETURNS = (("eval/return_mean", "evaluations"), ("collect/return_mean", "training episodes"))
# What is looked at first; the rest of train/ follows in the order of the rows, then these others.
_FIRST = (
    "train/loss",
    "train/policy_loss",
    "train/value_loss",
    "train/q_loss",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/explained_variance",
    "train/grad_norm",
)
_LATER = ("collect/length_mean", "eval/length_mean", "hp/learning_rate", "time/steps_per_second", "system/memory_mib")


def axis_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the counter that curves run over and its name: updates where a run takes no steps."""
    steps = {row.get("env_steps") for row in rows}
    return ("updates", "updates") if len(steps) < 2 < len(rows) else ("env_steps", "environment steps")


def return_chart(material: Material) -> Chart | None:
    """Return the chart that one looks at first: returns of evaluations and of training, and what counts as solved."""
    rows = material.sample.rows
    axis, axis_name = axis_of(rows)
    monitored = material.facts.best_metric
    wanted = list(_RETURNS)
    if monitored is not None and monitored not in dict(_RETURNS):
        wanted.insert(0, (monitored, monitored))
    lines, notes = [], []
    for metric, label in wanted:
        line = curve(rows, metric, axis)
        if not len(line.x):
            continue
        low, high = (curve(rows, metric.replace("_mean", ending), axis) for ending in ("_min", "_max"))
        if metric == "eval/return_mean" and len(low.x) == len(high.x) == len(line.x):
            lines.append(Line(label, line.x, line.y, low.y, high.y))
            notes.append("band: lowest to highest episode")
        else:
            lines.append(Line(label, line.x, line.y))
    if not lines:
        return None
    marks = () if material.threshold is None else (Mark("solved at", material.threshold),)
    title = "Return" if len(wanted) == len(_RETURNS) else f"Return and {monitored}"
    return Chart(title, axis_name, lines, marks, is_wide=True, note="; ".join(notes))


def small_charts(material: Material) -> list[Chart]:
    """Return one small chart for each metric of learning, and of a few others; at most two dozen."""
    rows = material.sample.rows
    axis, axis_name = axis_of(rows)
    charts = []
    for metric in learning_metrics([name for row in rows for name in row]):
        line = curve(rows, metric, axis)
        if len(line.x) > 1:
            charts.append(Chart(metric, axis_name, [Line(metric, line.x, line.y)]))
        if len(charts) == _MOST_SMALL:
            break
    return charts


def learning_metrics(names: Sequence[str]) -> list[str]:
    """Return which metrics are worth a small chart, in their order."""
    known = dict.fromkeys(name for name in names if name not in COUNTERS)
    rest = [name for name in known if name.startswith(("train/", "controller/", "workflow/"))]
    return [name for name in dict.fromkeys([*_FIRST, *rest, *_LATER]) if name in known]


def spread(line: Curve) -> tuple[float, float] | None:
    """Return the lowest and the highest finite value of a curve."""
    finite = line.y[np.isfinite(line.y)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None

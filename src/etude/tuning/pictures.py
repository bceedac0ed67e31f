"""A sweep in pictures: history, importances, slices, parallel coordinates, and the front of several objectives."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from etude.errors import MissingPackageError
from etude.telemetry.readable import number
from etude.tuning.cost_search import front, points_of
from etude.tuning.report import Report
from etude.tuning.space import Range
from etude.tuning.study import Trial

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "text.parse_math": False,
}
_COLOUR, _BEST, _MAP = "#3B6FB6", "#C8553D", "viridis"
_MOST_LABELS = 12


def draw_all(report: Report, names: Mapping[str, str]) -> dict[str, bytes]:
    """Return every picture that the sweep has something to show in, as PNG by its title."""
    try:
        import matplotlib
    except ImportError:
        raise MissingPackageError("pictures need Matplotlib: pip install 'etude[plots]'") from None
    trials = [trial for trial in report.study.trials if trial.objective is not None and trial.values]
    drawings: dict[str, Callable[[], Any]] = {"History": lambda: _history(report, trials)}
    if report.plan.sweep.tune is not None:
        drawings["Score against seconds"] = lambda: _seconds(report)
    if report.importances:
        drawings["Importances"] = lambda: _importances(report, names)
    drawings["Slices"] = lambda: _slices(report, trials, names)
    if len(report.plan.space.searched) > 1:
        drawings["Parallel coordinates"] = lambda: _parallel(report, trials, names)
    if len(report.plan.sweep.objective) > 1:
        drawings["Front"] = lambda: _front(report, trials)
    pictures = {}
    with matplotlib.rc_context(_STYLE):
        for title, draw in drawings.items():
            file = io.BytesIO()
            draw().savefig(file, format="png", dpi=130, facecolor="white")
            pictures[title] = file.getvalue()
    return pictures


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _history(report: Report, trials: Sequence[Trial]) -> Any:
    figure = _figure(7.2, 3.4)
    panel = figure.subplots()
    x, y = [trial.number for trial in trials], [trial.objective[0] for trial in trials if trial.objective]
    best = np.maximum.accumulate(y) if report.study.directions[0] == "max" else np.minimum.accumulate(y)
    panel.scatter(x, y, s=16, color=_COLOUR, alpha=0.7, label="trial")
    panel.step(x, best, where="post", color=_BEST, label="best so far")
    panel.set(xlabel="trial", ylabel=report.metric)
    panel.legend(frameon=False)
    return figure


def _seconds(report: Report) -> Any:
    figure = _figure(7.2, 3.8)
    panel = figure.subplots()
    curves = {trial.number: points for trial in report.study.trials if (points := points_of(trial))}
    for points in curves.values():
        panel.plot(
            [point.seconds for point in points], [point.score for point in points], color=_COLOUR, alpha=0.35, linewidth=1
        )
    best = [point for _, point in front(curves, report.study.directions[0])]
    panel.plot(
        [point.seconds for point in best], [point.score for point in best], "o-", color=_BEST, markersize=4, label="front"
    )
    panel.set(xlabel="seconds of training", ylabel=report.metric, xscale="log")
    panel.legend(frameon=False)
    return figure


def _importances(report: Report, names: Mapping[str, str]) -> Any:
    shares = dict(reversed(report.importances.items()))
    figure = _figure(7.2, 0.8 + 0.32 * len(shares))
    panel = figure.subplots()
    panel.barh([names[key] for key in shares], list(shares.values()), color=_COLOUR)
    panel.set(xlabel="share of the difference between good trials and the others (PED-ANOVA)", xlim=(0, 1))
    return figure


def _slices(report: Report, trials: Sequence[Trial], names: Mapping[str, str]) -> Any:
    keys = list(report.plan.space.searched)
    columns = min(3, len(keys))
    rows = math.ceil(len(keys) / columns)
    figure = _figure(3.2 * columns, 2.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    scores = [trial.objective[0] for trial in trials if trial.objective]
    for panel, key in zip(panels, keys, strict=False):
        axis = _Axis(report, trials, key)
        panel.scatter(axis.positions, scores, s=16, c=[trial.number for trial in trials], cmap=_MAP, alpha=0.8)
        panel.set_xlabel(names[key])
        if axis.is_log:
            panel.set_xscale("log")
        if axis.labels:
            panel.set_xticks(range(len(axis.labels)), axis.labels, rotation=30, ha="right")
    panels[0].set_ylabel(report.metric)
    for panel in panels[len(keys) :]:
        panel.set_axis_off()
    return figure


def _parallel(report: Report, trials: Sequence[Trial], names: Mapping[str, str]) -> Any:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    keys = list(report.plan.space.searched)
    axes = [_Axis(report, trials, key) for key in keys]
    shares = np.array([axis.shares for axis in axes])  # (keys, trials)
    scores = np.array([trial.objective[0] for trial in trials if trial.objective])
    figure = _figure(max(7.2, 1.5 * len(keys)), 3.8)
    panel = figure.subplots()
    scale = Normalize(float(scores.min()), float(scores.max()) if scores.max() > scores.min() else float(scores.min()) + 1)
    better_last = np.argsort(scores if report.study.directions[0] == "max" else -scores)
    for index in better_last:
        panel.plot(range(len(keys)), shares[:, index], color=colormaps[_MAP](scale(scores[index])), alpha=0.6, linewidth=1.1)
    for place, axis in enumerate(axes):
        low, high = axis.ends
        panel.annotate(high, (place, 1.03), ha="center", fontsize=7.5, color="#555555")
        panel.annotate(low, (place, -0.08), ha="center", fontsize=7.5, color="#555555")
    panel.set_xticks(range(len(keys)), [names[key] for key in keys], rotation=15, ha="right")
    panel.tick_params(axis="x", pad=12)
    panel.set_yticks([])
    panel.set_ylim(-0.12, 1.1)
    figure.colorbar(ScalarMappable(scale, _MAP), ax=panel, label=report.metric)
    return figure


def _front(report: Report, trials: Sequence[Trial]) -> Any:
    first, second = report.plan.sweep.objective[:2]
    points = [trial.objective for trial in trials if trial.objective]
    front = [ranked.trial.objective for ranked in report.best if ranked.trial.objective]
    figure = _figure(6.0, 4.0)
    panel = figure.subplots()
    panel.scatter([point[1] for point in points], [point[0] for point in points], s=16, color=_COLOUR, alpha=0.6)
    front.sort(key=lambda point: point[1])
    panel.plot([point[1] for point in front], [point[0] for point in front], "o-", color=_BEST, markersize=4)
    panel.set(xlabel=second.metric, ylabel=first.metric)
    return figure


class _Axis:
    """One key as an axis: numbers as they are, choices by their place in the list."""

    def __init__(self, report: Report, trials: Sequence[Trial], key: str) -> None:
        dimension = report.plan.space.searched[key]
        values = [trial.values[key] for trial in trials]
        self.labels: list[str] = []
        self.is_log = False
        if isinstance(dimension, Range):
            self.is_log, self.positions = dimension.log, [float(value) for value in values]
            low, high = dimension.low, dimension.high
            self.ends = number(low), number(high)
        else:
            texts = [str(value) for value in dimension.values]
            self.positions = [float(texts.index(str(value))) for value in values]
            self.labels = texts if len(texts) <= _MOST_LABELS else []
            low, high = 0.0, float(max(1, len(texts) - 1))
            self.ends = texts[0], texts[-1]
        scaled = [math.log(value) for value in (low, high)] if self.is_log else [low, high]
        width = (scaled[1] - scaled[0]) or 1.0
        self.shares = [((math.log(p) if self.is_log else p) - scaled[0]) / width for p in self.positions]

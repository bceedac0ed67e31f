"""What a chart of many runs is drawn from: a line for each run, or a mean and a band for the seeds of each group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etude.comparison.curves import Curve, combine, smoothed
from etude.comparison.groups import Group, make_groups
from etude.comparison.members import Member
from etude.runs.statistics import Array
from etude.telemetry.names import COUNTERS
from etude.ui.downsampling import extremes, means, within
from etude.ui.metric_file import MetricFile

AXES = (*COUNTERS, "time")
BANDS = ("range", "interval", "runs")
_BAND_POINTS = 300
_INTERVAL_POINTS = 100
"""A bootstrap at each of them: three times as many take three times as long, and look the same."""
_SMOOTHED_POINTS = 2000


@dataclass(frozen=True)
class Request:
    """What is to be drawn."""

    metric: str
    axis: str = "env_steps"
    by: str | None = None
    """What makes runs seeds of one group, as `etude runs compare --by`; None is all settings but the seed."""
    band: str = "range"
    smooth: float = 0.0
    """The width of the smoothing window, as a share of the axis."""
    points: int = 600
    start: float | None = None
    end: float | None = None


class Drawing:
    """Lines for a chart, as a header and one block of numbers: a page has them without parsing a million of them."""

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []
        self._blocks: list[Array] = []

    def add(self, facts: dict[str, Any], *columns: Array) -> None:
        """Add a line: what it is, and its columns of equal length."""
        self._lines.append({**facts, "points": len(columns[0]), "columns": len(columns)})
        self._blocks.extend(np.ascontiguousarray(column, dtype="<f8") for column in columns)

    def encoded(self, **facts: Any) -> bytes:
        """Return a length in 4 bytes, the header, padding to 8 bytes, and the columns of all lines one after another."""
        header = json.dumps({**facts, "lines": self._lines}, separators=(",", ":")).encode()
        padding = -(4 + len(header)) % 8
        numbers = b"".join(block.tobytes() for block in self._blocks)
        return len(header).to_bytes(4, "little") + header + b" " * padding + numbers


def draw(members: Sequence[Member], files: Sequence[MetricFile], request: Request) -> Drawing:
    """Return the lines of a metric; runs that lack it have none."""
    drawing = Drawing()
    file_of = {member.id: file for member, file in zip(members, files, strict=True)}
    lines = {member.id: file_of[member.id].curve(request.metric, request.axis) for member in members}
    lines = {run: line for run, line in lines.items() if len(line.x)}
    if not lines:
        return drawing
    width = request.smooth * max(line.x[-1] - line.x[0] for line in lines.values())
    for number, group in enumerate(make_groups(members, request.by)):
        present = [(member, lines[member.id]) for member in group.members if member.id in lines]
        if not present:
            continue
        facts = _facts(group, number)
        apart = request.band == "runs" or len(present) == 1
        prepared = [(member, _prepared(line, width, request)) for member, line in present]
        if apart:
            for member, line in prepared:
                shown = extremes(within(line, request.start, request.end), request.points)
                facts_of_run = {"run": member.id, "seed": member.facts.seed, "status": member.facts.status}
                drawing.add({**facts, **facts_of_run, "runs": 1}, shown.x, shown.y)
        else:
            band = _band([line for _, line in prepared], request)
            drawing.add({**facts, "runs": len(present)}, *band)
    return drawing


def _facts(group: Group, number: int) -> dict[str, Any]:
    return {"group": number, "label": group.method_label, "environment": group.environment, "method": group.method[:80]}


def _prepared(line: Curve, width: float, request: Request) -> Curve:
    # A window is far wider than a piece: of means it gives what it gives of all, and in a hundredth of the time.
    return smoothed(means(line, _SMOOTHED_POINTS), width) if width > 0 else line


def _band(lines: Sequence[Curve], request: Request) -> tuple[Array, Array, Array, Array]:
    """The mean of several runs over a common axis, and a band around it."""
    shown = [means(within(line, request.start, request.end), 4 * _BAND_POINTS) for line in lines]
    shown = [line for line in shown if len(line.x)]
    if not shown:
        nothing = np.empty(0)
        return nothing, nothing, nothing, nothing
    if request.band == "interval":
        band = combine([shown], points=_INTERVAL_POINTS)
        return band.x, band.value, _or(band.low, band.value), _or(band.high, band.value)
    grid = np.linspace(min(line.x[0] for line in shown), max(line.x[-1] for line in shown), _BAND_POINTS)
    values = np.stack([np.interp(grid, line.x, line.y, left=np.nan, right=np.nan) for line in shown])
    present = ~np.isnan(values).all(axis=0)
    grid, values = grid[present], values[:, present]
    return grid, np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)


def _or(values: Array, otherwise: Array) -> Array:
    return np.where(np.isnan(values), otherwise, values)

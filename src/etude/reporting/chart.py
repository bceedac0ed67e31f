"""Curves as SVG, drawn here: no script, no other package, colours left to the page's style."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np

from etude.files.printable import printable_line
from etude.runs.statistics import Array

COLOURS = 6
"""How many the page's style has; then they come again, dashed."""
POINTS = 240
_WIDE, _SMALL = (920, 320), (452, 210)
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 12, 38


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` are the edges of its band, where it has one."""

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


class Mark(NamedTuple):
    """A horizontal line that is worth reaching."""

    label: str
    y: float


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    axis: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    is_wide: bool = False
    note: str = ""
    """What line and band are, where that needs saying."""


class _Frame(NamedTuple):
    """Where values lie on the picture."""

    width: int
    height: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / (high - low) * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        # Halved, because the span of two ordinary floats can overflow.
        return self.height - _BOTTOM - (value / 2 - low / 2) / (high / 2 - low / 2) * (self.height - _TOP - _BOTTOM)


def svg(chart: Chart, *, is_wide: bool = False) -> str:
    """Return the picture; a chart without a finite value says so."""
    lines = [thinned(line) for line in chart.lines]
    width, height = _WIDE if is_wide else _SMALL
    title = escape(printable_line(chart.title))
    opening = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}"><title>{title}</title>'
    values = [value for line in lines for part in (line.y, line.low, line.high) if part is not None for value in part]
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        middle = f'<text class="tick" x="{width / 2}" y="{height / 2}" text-anchor="middle">no finite values</text>'
        return f"{opening}{middle}</svg>"
    marks = [mark for mark in chart.marks if math.isfinite(mark.y)]
    frame = _Frame(width, height, _x_range(lines), _y_range([*finite, *(mark.y for mark in marks)]))
    parts = [opening, *_grid(frame, chart.axis)]
    parts += [_mark(frame, mark) for mark in marks]
    parts += [_band(frame, line, number) for number, line in enumerate(lines)]
    parts += [_line(frame, line, number) for number, line in enumerate(lines)]
    return "".join([*parts, "</svg>"])


def thinned(line: Line, points: int = POINTS) -> Line:
    """Return a line of at most `points` points: means of neighbours, and how far they lie apart as its band."""
    if len(line.x) <= points:
        return line
    edges = [position * len(line.x) // points for position in range(points + 1)]
    spans = [slice(start, end) for start, end in itertools.pairwise(edges)]
    low, high = (line.y if edge is None else edge for edge in (line.low, line.high))
    return Line(
        line.label,
        np.array([line.x[span].mean() for span in spans]),
        np.array([_of_finite(line.y[span], np.mean) for span in spans]),
        np.array([_of_finite(low[span], np.min) for span in spans]),
        np.array([_of_finite(high[span], np.max) for span in spans]),
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two values, at most about `most`."""
    rough = (high / 2 - low / 2) / max(1, most) * 2
    if not (math.isfinite(rough) and rough > 0):
        return [low]
    size = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * (1 - 1e-9)), 10 * size)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)] if last - first <= 4 * most else [low, high]


def short(value: float, digits: int = 3) -> str:
    """Return a number for an axis: 20k, 1.5M, 0.002."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= size < 1000 * unit:
            return f"{value / unit:.{digits}g}{letter}"
    return f"{value:.{digits}g}" if size >= 1e-4 or size == 0 else f"{value:.1e}"


def labels(values: Sequence[float]) -> list[str]:
    """Return numbers for an axis with as many digits as it takes to tell them apart."""
    for digits in range(3, 9):
        shown = [short(value, digits) for value in values]
        if len(set(shown)) == len(shown):
            return shown
    return [f"{value:.9g}" for value in values]


def legend(chart: Chart) -> list[tuple[int, str]]:
    """Return which colour is which curve, where there is more than one."""
    return [(number, line.label) for number, line in enumerate(chart.lines)] if len(chart.lines) > 1 else []


def _x_range(lines: Sequence[Line]) -> tuple[float, float]:
    ends = [float(value) for line in lines if len(line.x) for value in (line.x[0], line.x[-1])]
    low, high = min(ends), max(ends)
    low = min(0.0, low) if low >= 0 else low
    return (low, high) if high > low else (low, low + 1.0)


def _y_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    span = high / 2 - low / 2
    if span <= 1e-12 * max(abs(low), abs(high)):
        room = 0.5 * abs(low) if low else 0.5
        return low - room, high + room
    most = sys.float_info.max
    return max(-most, low - 0.08 * span), min(most, high + 0.08 * span)


def _grid(frame: _Frame, axis: str) -> list[str]:
    bottom, right = frame.height - _BOTTOM, frame.width - _RIGHT
    parts = []
    rows = ticks(*frame.y_range, most=6)
    for value, text in zip(rows, labels(rows), strict=True):
        y = f"{frame.y(value):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 7}" y="{y}" dy="0.34em" text-anchor="end">{text}</text>')
    columns = ticks(*frame.x_range, most=8 if frame.width > 600 else 4)
    for value, text in zip(columns, labels(columns), strict=True):
        x = f"{frame.x(value):.1f}"
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    label = escape(printable_line(axis))
    parts.append(f'<text class="tick" x="{right}" y="{frame.height - 5}" text-anchor="end">{label}</text>')
    return parts


def _mark(frame: _Frame, mark: Mark) -> str:
    y = frame.y(mark.y)
    above = y - 5 if y > _TOP + 14 else y + 14
    text = escape(printable_line(f"{mark.label} {short(mark.y, 4)}"))
    line = f'<line class="mark" x1="{_LEFT}" x2="{frame.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="tick" x="{frame.width - _RIGHT}" y="{above:.1f}" text-anchor="end">{text}</text>'


def _band(frame: _Frame, line: Line, number: int) -> str:
    if line.low is None or line.high is None:
        return ""
    edges = [
        (x, low, high)
        for x, low, high in zip(line.x, line.low, line.high, strict=True)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if len(edges) < 2:
        return ""
    there = [_point(frame, x, high) for x, _, high in edges]
    back = [_point(frame, x, low) for x, low, _ in reversed(edges)]
    return f'<path class="band {_colour(number)}" d="M{"L".join([*there, *back])}Z"/>'


def _line(frame: _Frame, line: Line, number: int) -> str:
    parts, pieces = [], _pieces(frame, line)
    paths = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    if paths:
        parts.append(f'<path class="line {_colour(number)}" d="{paths}"/>')
    few = sum(map(len, pieces)) <= 30
    for point in (point for piece in pieces for point in piece if few or len(piece) == 1):
        x, y = point.split(" ")
        parts.append(f'<circle class="dot {_colour(number)}" cx="{x}" cy="{y}" r="2.6"/>')
    return "".join(parts)


def _pieces(frame: _Frame, line: Line) -> list[list[str]]:
    """The stretches of a line between values that are not finite."""
    pieces: list[list[str]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            pieces[-1].append(_point(frame, x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _point(frame: _Frame, x: float, y: float) -> str:
    return f"{frame.x(float(x)):.1f} {frame.y(float(y)):.1f}"


def _colour(number: int) -> str:
    return f"c{number % COLOURS}" + (" dashed" if number >= COLOURS else "")


def _of_finite(values: Array, measure: Callable[[Array], Any]) -> float:
    kept = values[np.isfinite(values)]
    return float(measure(kept)) if len(kept) else math.nan

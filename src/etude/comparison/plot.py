"""Curves as a picture for a document: PNG, SVG or PDF, by Matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from etude.comparison.curves import Band
from etude.comparison.group_styles import styles
from etude.comparison.report import axis_title
from etude.comparison.results import Comparison
from etude.errors import UserError
from etude.runs.statistics import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
_MOST_DIRECT_LABELS = 5
_MOST_COLUMNS = 3
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#333333",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    # A dollar in a run's name is a dollar.
    "text.parse_math": False,
    # The same comparison gives the same file.
    "svg.hashsalt": "etude",
}
_CAPTION: dict[str, Any] = {"fontsize": 8.5, "color": "#777777"}


def draw(comparison: Comparison, format: str) -> bytes:
    """Return the curves of every metric on every environment, one panel each, as a file of the given format."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(f"a plot as {format} needs Matplotlib: pip install 'etude[plots]' (or write an .html page)") from None
    shown = [(metric, environment) for metric in comparison.metrics for environment in comparison.environments]
    columns = min(len(shown), _MOST_COLUMNS)
    rows = math.ceil(len(shown) / columns)
    with matplotlib.rc_context(_STYLE):
        size = (7.2 if columns == 1 else 4.6 * columns, 4.2 if rows == 1 else 3.3 * rows)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        direct = len(shown) == 1 and 1 < len(comparison.groups) <= _MOST_DIRECT_LABELS
        for panel, (metric, environment) in zip(panels, shown, strict=False):
            _draw_panel(panel, comparison, metric, environment, direct=direct)
        for panel in panels[len(shown) :]:
            panel.set_axis_off()
        known = {label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
        labels, handles = list(known), list(known.values())
        if direct or len(handles) < 2:
            figure.supxlabel(caption(comparison), x=0.01, ha="left", **_CAPTION)
        else:
            # As the legend's title: two things outside the panels would be laid over one another.
            across = max(1, min(len(handles), int(size[0] / (0.75 + 0.09 * max(map(len, labels))))))
            legend = figure.legend(handles, labels, loc="outside lower left", ncols=across, frameon=False, alignment="left")
            legend.set_title(caption(comparison))
            legend.get_title().set(**_CAPTION)
        file = io.BytesIO()
        # Without a date the same comparison gives the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
            figure.savefig(file, format=format, dpi=160, metadata=metadata, facecolor="white")
    return file.getvalue()


def caption(comparison: Comparison) -> str:
    """Return what line and band are."""
    line = {"mean": "mean", "iqm": "interquartile mean"}[comparison.aggregate]
    counts = sorted({len(group.members) for group in comparison.groups})
    over = f"{counts[0]} seed{'s' * (counts[0] > 1)}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    band = "; band: 95% bootstrap interval" if counts[-1] > 1 else ""
    thin = "; thin: not all seeds" if _has_thin_parts(comparison) else ""
    smooth = f"; smoothed over {comparison.smooth:.2g} of the axis" if comparison.smooth else ""
    return f"Line: {line} of {over}{band}{thin}{smooth}."


def _draw_panel(panel: Axes, comparison: Comparison, metric: str, environment: str, *, direct: bool) -> None:
    from matplotlib.ticker import EngFormatter

    ends = []
    for group, look in zip(comparison.groups, styles(comparison.groups), strict=True):
        band = comparison.band(group, metric)
        if group.environment != environment or not len(band.x):
            continue
        dashes = (0, tuple(0.6 * length for length in look.dashes)) if look.dashes else "-"
        _draw_band(panel, band, look.colour, dashes, len(group.members), group.method_label)
        last = max(index for index, runs in enumerate(band.runs) if runs)
        ends.append((band.x[last], band.value[last], group.label, look.colour))
    several = len(comparison.environments) > 1
    panel.set_title(f"{metric} · {environment}" if several else metric, loc="left", fontweight="bold")
    panel.set_xlabel(axis_title(comparison.axis))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    low, high = panel.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        panel.yaxis.set_major_formatter(EngFormatter(sep=""))
    panel.margins(x=0.01)
    panel.set_xlim(left=0)
    if direct:
        _label_ends(panel, ends)


def _draw_band(panel: Axes, band: Band, colour: str, dashes: Any, members: int, label: str) -> None:
    single = {"marker": "o", "markersize": 4} if len(band.x) == 1 else {}
    full = band.runs == members
    # Where some of the runs have already ended or not yet begun, the line is thin: it stands for fewer seeds.
    alone = full.copy()
    alone[1:] &= full[:-1]
    alone[:-1] &= full[1:]
    panel.fill_between(band.x, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(band.x, _only(band.value, ~alone), color=colour, linewidth=0.9, linestyle=dashes, alpha=0.8)
    whole = _only(band.value, full)
    panel.plot(band.x, whole, color=colour, linewidth=2, linestyle=dashes, label=label, solid_capstyle="round", **single)


def _only(values: Array, here: NDArray[np.bool_]) -> Array:
    return np.where(here, values, np.nan)


def _label_ends(panel: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each label beside the end of its line, moved apart where they would overlap."""
    low, high = panel.get_ylim()
    gap = 0.06 * (high - low)
    ordered = sorted(ends, key=lambda end: end[1])
    heights = [end[1] for end in ordered]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + gap)
    # What was pushed beyond the top comes down again, and takes those below with it.
    for index in range(len(heights) - 1, -1, -1):
        ceiling = high if index == len(heights) - 1 else heights[index + 1] - gap
        heights[index] = min(heights[index], ceiling)
    right = panel.get_xlim()[1]
    for (_, _, label, colour), height in zip(ordered, heights, strict=True):
        panel.annotate(
            label,
            (right, height),
            xytext=(4, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontweight="bold",
            annotation_clip=False,
        )


def _has_thin_parts(comparison: Comparison) -> bool:
    for group in comparison.groups:
        for metric in comparison.metrics:
            runs = comparison.band(group, metric).runs
            if len(runs) and runs.min() < len(group.members):
                return True
    return False

"""`etude runs compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from etude.cli.output import emit_json, note, say, write_file
from etude.cli.parameters import AsJson, RunNames, RunsFolder
from etude.cli.runs.chosen import At, Axis, GroupBy, RunFilters, RunGroup, chosen_runs, split_metrics
from etude.errors import UserError

if TYPE_CHECKING:
    from etude.comparison.results import Comparison

_SUFFIXES = (".html", ".png", ".svg", ".pdf")


def compare(
    *selected: RunNames,
    filters: RunFilters = None,
    group: RunGroup = None,
    metrics: list[str] | None = None,
    by: GroupBy = None,
    x: Axis = "env_steps",
    at: At = "last",
    aggregate: Literal["mean", "iqm"] | None = None,
    smooth: float | None = None,
    plot: list[Path] | None = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Compare runs: seeds of one setup taken together, with 95% bootstrap intervals, and the settings that differ.

    Parameters
    ----------
    metrics
        What to compare, separated by commas; patterns such as train/* work. Default: eval/return_mean.
    aggregate
        What the line of a plot is: the mean (the default) or the interquartile mean.
    smooth
        Smooth each run's curve over this share of the axis, 0 to 0.5.
    plot
        Write the curves to this file: .html (a page that stands alone), .png, .svg or .pdf; may be given several times.
    """
    if smooth is not None and not 0 <= smooth <= 0.5:
        raise UserError(f"--smooth {smooth:g}: must be at least 0 and at most 0.5")
    for flag, value in (("--aggregate", aggregate), ("--smooth", smooth)):
        if value is not None and not plot:
            raise UserError(f"{flag} {value} is of curves: say where to draw them with --plot FILE.html")
    aggregate, smooth = aggregate or "mean", smooth or 0.0
    for path in plot or []:
        if path.suffix.lower() not in _SUFFIXES:
            raise UserError(f"--plot {path}: must end in {', '.join(_SUFFIXES)}")
    paths = chosen_runs(selected, filters or (), group, runs)
    from etude.comparison import results
    from etude.comparison.notes import notes

    names = split_metrics(metrics or ())
    comparison = results.compare(paths, metrics=names, by=by, axis=x, at=at, aggregate=aggregate, smooth=smooth)
    if as_json:
        from etude.comparison.report import report

        emit_json(report(comparison))
    else:
        from etude.comparison.text import terminal

        say(terminal(comparison))
        for line in notes(comparison):
            note(f"note: {line}")
    for path in plot or []:
        _write(path, comparison, every_metric=not names)
    if not plot and not as_json:
        note("curves: --plot FILE.html, .png, .svg or .pdf")
    return 0


def _write(path: Path, comparison: Comparison, *, every_metric: bool) -> None:
    suffix = path.suffix.lower()
    if suffix == ".html":
        from etude.comparison.page import page

        data = page(comparison, every_metric=every_metric).encode()
    else:
        from etude.comparison.plot import draw

        data = draw(comparison, suffix.removeprefix("."))
    write_file(path, data, "--plot")

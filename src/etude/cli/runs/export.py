"""`etude runs export`: results as a table for a paper or another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from etude.cli.output import emit, note, write_file
from etude.cli.parameters import RunNames, RunsFolder
from etude.cli.runs.chosen import At, Axis, GroupBy, RunFilters, RunGroup, chosen_runs, split_metrics
from etude.errors import UserError


def export(
    *selected: RunNames,
    format: Literal["latex", "csv", "json", "markdown"] = "csv",
    filters: RunFilters = None,
    group: RunGroup = None,
    metrics: list[str] | None = None,
    by: GroupBy = None,
    at: At = "last",
    curves: bool = False,
    x: Axis = "env_steps",
    aggregate: Literal["mean", "iqm"] | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    runs: RunsFolder = None,
) -> int:
    """Export results over seeds: LaTeX or Markdown for reading, CSV or JSON in full precision.

    Parameters
    ----------
    format
        latex (with booktabs), markdown, csv or json.
    metrics
        What to export, separated by commas; patterns such as train/* work. Default: eval/return_mean.
    curves
        Export the curves instead, one row for each position (csv and json).
    aggregate
        What the value of a curve is: the mean (the default) or the interquartile mean.
    out
        The file to write. Default: the terminal.
    """
    if curves and format in ("latex", "markdown"):
        raise UserError(f"--curves --format {format}: curves are exported as csv or json")
    if aggregate is not None and not curves:
        raise UserError(f"--aggregate {aggregate} is of curves: add --curves")
    paths = chosen_runs(selected, filters or (), group, runs)
    from etude.comparison import report, results
    from etude.comparison.notes import notes

    comparison = results.compare(
        paths, metrics=split_metrics(metrics or ()), by=by, axis=x, at=at, aggregate=aggregate or "mean"
    )
    if format in ("latex", "markdown"):
        from etude.comparison import paper_table

        text = paper_table.latex(comparison) if format == "latex" else paper_table.markdown(comparison)
    elif curves:
        rows = report.curve_rows(comparison)
        text = report.to_csv(rows) if format == "csv" else json.dumps(rows, indent=1) + "\n"
    elif format == "csv":
        text = report.to_csv(report.table_rows(comparison))
    else:
        text = json.dumps(report.report(comparison), indent=1) + "\n"
    for line in notes(comparison):
        note(f"note: {line}")
    if out is None:
        emit(text)
    else:
        write_file(out, text.encode(), "--out")
    return 0

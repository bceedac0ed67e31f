"""`etude report`: what a run, or a group of runs, was and what came of it, as Markdown and as a page that stands alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunNames, RunsFolder
from etude.cli.places import find_run
from etude.cli.runs.chosen import RunFilters, RunGroup, chosen_runs
from etude.errors import UserError


def report(
    *selected: RunNames,
    filters: RunFilters = None,
    group: RunGroup = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Write the report of each run that is named, or one report of a group of runs.

    Parameters
    ----------
    out
        The folder to write into. Default: each run's own directory; for a group, the current folder.
    """
    from etude.reporting.writing import write_run_report

    if group is None and not filters:
        if not selected:
            raise UserError("which run? name it (@last, an id, the beginning of one), or a group with --group")
        paths = [find_run(selector, runs).run.path for selector in selected]
        if out is not None and len(paths) > 1:
            raise UserError(f"--out {out}: is for one run or one group; {len(paths)} runs were named")
        files = [file for path in paths for file in write_run_report(path, out)]
    else:
        files = list(_of_group(chosen_runs(selected, filters or (), group, runs), group, out, runs))
    if as_json:
        emit_json({"files": [str(file) for file in files]})
        return 0
    for file in files:
        say(str(file))
    note("open the .html in a browser; the .md is the same as text")
    return 0


def _of_group(paths: list[Path], group: str | None, out: Path | None, runs: Path | None) -> tuple[Path, Path]:
    from etude.cli.places import runs_root
    from etude.reporting.group_report import group_report, read_group
    from etude.reporting.writing import write_document
    from etude.runs.naming import safe_name

    name = group or "selected runs"
    folder = out or Path()
    comparison = read_group(paths)
    now = datetime.now().astimezone()
    document = group_report(comparison, name=name, folder=folder, root=runs_root(runs), now=now)
    return write_document(document, folder, f"report-{safe_name(name)}")

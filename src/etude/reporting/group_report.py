"""The report of a group of runs: seeds as bands, statistics over them, what differs, and each run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from etude.comparison.curves import Band
from etude.comparison.groups import Group
from etude.comparison.members import Member, read_member
from etude.comparison.notes import notes
from etude.comparison.report import axis_title
from etude.comparison.results import Comparison, Result, compare_members
from etude.comparison.text import interval, seeds, steps, value, wall_time
from etude.reporting.chart import Chart, Line, Mark
from etude.reporting.document import Block, Bullets, Charts, Code, Document, Inline, Mono, Paragraph, Section, Table
from etude.reporting.run_curves import learning_metrics
from etude.reporting.run_report import report_link
from etude.runs.places import runs_option
from etude.runs.statistics import summarise
from etude.runs.thresholds import first_reached
from etude.telemetry.readable import duration, number
from etude.telemetry.sampled_rows import sampled_rows

_RETURNS = ("eval/return_mean", "collect/return_mean")
_MOST_SMALL = 12
_MOST_GROUPS = 12
"""Lines of one chart; more can't be told apart."""


def read_group(paths: Sequence[Path]) -> Comparison:
    """Read runs and compare them in what they monitor, as far as a sample of their rows tells."""
    unique = dict.fromkeys(path.resolve() for path in paths)
    return compare_members([read_member(path, lambda file: sampled_rows(file).rows) for path in unique])


def group_report(comparison: Comparison, *, name: str, folder: Path, root: Path, now: datetime) -> Document:
    """Return the report; `folder` is where it is going to lie, for links."""
    members = comparison.members
    lines: list[tuple[str, Inline]] = [
        ("runs", str(len(members))),
        ("environments", ", ".join(comparison.environments)),
        ("algorithms", ", ".join(sorted({member.algorithm for member in members}))),
        ("report written", f"{now:%Y-%m-%d %H:%M:%S %Z}".strip()),
    ]
    remarks = notes(comparison)
    sections = [
        Section("Groups", [_groups(comparison)]),
        Section("Results", _results(comparison)),
        Section("Curves", _curves(comparison)),
        Section("Steps and time to the threshold", _thresholds(comparison)),
        Section("Settings that differ", _settings(comparison)),
        Section("Before you believe it", [Bullets([("", remark) for remark in remarks])] if remarks else []),
        Section("Runs", [_runs(comparison, folder)]),
        Section("How to reproduce it", [Code(_commands(members, name, root), "bash")]),
    ]
    return Document(f"Group {name}", lines, [section for section in sections if section.blocks])


def _groups(comparison: Comparison) -> Block:
    rows: list[Sequence[Inline]] = [
        (group.letter, group.label, str(len(group.members)), seeds(group), steps(group), wall_time(group))
        for group in comparison.groups
    ]
    return Table(("", "group", "runs", "seeds", "steps", "time of a run"), rows, frozenset({2, 4, 5}))


def _results(comparison: Comparison) -> list[Block]:
    blocks: list[Block] = []
    for metric in comparison.metrics:
        results = comparison.of(metric)
        best = "lowest" if any(result.lowest_is_best for result in results) else "highest"
        blocks.append(Paragraph(f"{metric}: the last value of each run, over seeds; best: the {best} of any run at any time."))
        head = ("", "seeds", "mean", "95% interval", "IQM", "95% interval", "std", "lowest", "highest", "best")
        blocks.append(Table(head, [_result(result) for result in results], frozenset(range(1, 10))))
    chances: list[Sequence[Inline]] = [
        (f"{each.first} over {each.second}", each.metric, f"{each.probability.value:.2f}", interval(each.probability.interval))
        for each in comparison.improvements
    ]
    if chances:
        blocks.append(Paragraph("The chance that a run of one is higher than a run of the other:"))
        blocks.append(Table(("", "metric", "chance", "95% interval"), chances, frozenset({2, 3})))
    return blocks


def _result(result: Result) -> Sequence[Inline]:
    found = result.summary
    if found is None:
        return (result.group.letter, "0", *["-"] * 8)
    mean, iqm = found.mean, found.iqm
    return (
        f"{result.group.letter} {result.group.label}",
        str(found.count),
        number(mean.value),
        interval(mean.interval),
        number(iqm.value),
        interval(iqm.interval),
        *(value(each) for each in (found.std, found.low, found.high, result.best)),
    )


def _curves(comparison: Comparison) -> list[Block]:
    known = {name for member in comparison.members for name in member.metrics}
    first = list(dict.fromkeys([*comparison.metrics, *(name for name in _RETURNS if name in known)]))
    later = [name for name in learning_metrics(sorted(known)) if name not in first][:_MOST_SMALL]
    charts = [
        chart
        for metrics, is_wide in ((first, True), (later, False))
        for metric in metrics
        for environment in comparison.environments
        if (chart := _chart(comparison, metric, environment, is_wide=is_wide)) is not None
    ]
    cut = len(comparison.groups) > _MOST_GROUPS
    note: list[Block] = [Paragraph(f"The first {_MOST_GROUPS} of {len(comparison.groups)} groups are drawn.")] if cut else []
    return [*note, Charts(charts)] if charts else [Paragraph("None of the runs has metrics yet.")]


def _chart(comparison: Comparison, metric: str, environment: str, *, is_wide: bool) -> Chart | None:
    groups = [group for group in comparison.groups if group.environment == environment][:_MOST_GROUPS]
    lines = [_line(group.label, band) for group in groups if len((band := comparison.band(group, metric)).x)]
    if not lines:
        return None
    title = metric if len(comparison.environments) == 1 else f"{metric} · {environment}"
    limit = next((result.threshold for result in comparison.results if result.group.environment == environment), None)
    marks = (Mark("solved at", limit),) if limit is not None and metric in _RETURNS else ()
    several = any(len(group.members) > 1 for group in groups)
    note = f"line: {comparison.aggregate} over seeds; band: 95% bootstrap interval" if several and is_wide else ""
    return Chart(title, axis_title(comparison.axis), lines, marks, is_wide=is_wide, note=note)


def _line(label: str, band: Band) -> Line:
    has_band = bool(np.isfinite(band.low).any())
    return Line(label, band.x, band.value, band.low if has_band else None, band.high if has_band else None)


def _thresholds(comparison: Comparison) -> list[Block]:
    limits = {result.group.letter: result.threshold for result in comparison.results if result.threshold is not None}
    rows: list[Sequence[Inline]] = []
    for group in comparison.groups:
        limit = limits.get(group.letter)
        if limit is not None:
            rows.append(_reached(group, limit))
    head = ("", "threshold", "reached by", "steps, mean", "95% interval", "time, mean")
    return [Table(head, rows, frozenset({1, 2, 3, 4, 5}))] if rows else []


def _reached(group: Group, limit: float) -> Sequence[Inline]:
    metric = next((name for name in _RETURNS if any(name in member.metrics for member in group.members)), _RETURNS[0])
    found = [each for member in group.members if (each := first_reached(member.rows, metric, limit)) is not None]
    count = f"{len(found)} of {len(group.members)}"
    if not found:
        return (f"{group.letter} {group.label}", number(limit), count, "-", "-", "-")
    taken = summarise([[float(each.env_steps) for each in found]]).mean
    seconds = sum(each.seconds for each in found) / len(found)
    return (
        f"{group.letter} {group.label}",
        number(limit),
        count,
        f"{taken.value:,.0f}",
        interval(taken.interval),
        duration(seconds),
    )


def _settings(comparison: Comparison) -> list[Block]:
    if not comparison.settings:
        return []
    head = ("setting", *(group.letter for group in comparison.groups))
    return [Table(head, [(Mono(each.key), *map(Mono, each.values)) for each in comparison.settings])]


def _runs(comparison: Comparison, folder: Path) -> Block:
    rows: list[Sequence[Inline]] = []
    for group in comparison.groups:
        for member in group.members:
            facts = member.facts
            took = "-" if facts.elapsed_s is None else duration(facts.elapsed_s)
            counted = "-" if facts.env_steps is None else f"{facts.env_steps:,}"
            rows.append((group.letter, report_link(facts.path, folder), str(facts.seed), facts.status, counted, took,
                         value(facts.last), value(facts.best)))  # fmt: skip
    return Table(("", "run", "seed", "status", "steps", "time", "last", "best"), rows, frozenset({2, 4, 5, 6, 7}))


def _commands(members: Sequence[Member], name: str, root: Path) -> str:
    where = runs_option(root)
    again = [f"etude train --from-run {shlex.quote(member.id)} --seed {member.facts.seed}{where}" for member in members]
    return "\n".join(["# each run again", *again, "# side by side", f"etude runs compare --group {shlex.quote(name)}{where}"])

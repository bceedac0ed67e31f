"""A comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from etude.comparison.curves import AXES
from etude.comparison.groups import Group
from etude.comparison.results import Comparison, Result
from etude.runs.statistics import Estimate, Interval
from etude.telemetry.readable import duration, number

_MOST_PAIRS = 15
_LONGEST_CELL = 40
NO_VALUE = "-"


def terminal(comparison: Comparison) -> str:
    """Return the tables: groups, one for each metric, the chances, and the settings that differ."""
    parts = [_groups(comparison)]
    for metric in comparison.metrics:
        parts.append(_metric(comparison, metric))
        parts.append(_improvements(comparison, metric))
    parts.append(_settings(comparison))
    return "\n\n".join(part for part in parts if part)


def aligned(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return rows as columns, the given ones aligned to the right; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return "\n".join(lines)


def steps(group: Group) -> str:
    """Return how many environment steps the runs of a group have, as a range where they differ."""
    reached = [member.facts.env_steps for member in group.members if member.facts.env_steps is not None]
    if not reached:
        return NO_VALUE
    low, high = min(reached), max(reached)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def seeds(group: Group) -> str:
    """Return the seeds of a group, shortened: ``1-5``, ``1 2 7``."""
    found = sorted({member.facts.seed for member in group.members if member.facts.seed is not None})
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    shown = " ".join(map(str, found[:8])) + (" ..." if len(found) > 8 else "")
    return shown or NO_VALUE


def wall_time(group: Group) -> str:
    """Return how long a run of the group took, on average."""
    times = [member.facts.elapsed_s for member in group.members if member.facts.elapsed_s is not None]
    return duration(sum(times) / len(times)) if times else NO_VALUE


def interval(found: Interval | None, *, digits: int = 4) -> str:
    """Return an interval in brackets."""
    return f"[{number(found.low, digits)}, {number(found.high, digits)}]" if found else NO_VALUE


def value(found: float | None) -> str:
    """Return a number, or a dash where there is none."""
    return NO_VALUE if found is None else number(found)


def _groups(comparison: Comparison) -> str:
    rows = [("", "GROUP", "RUNS", "SEEDS", "STEPS", "TIME")]
    for group in comparison.groups:
        runs = str(len(group.members))
        rows.append((group.letter, group.label, runs, seeds(group), steps(group), wall_time(group)))
    return aligned(rows, right=(2, 4, 5))


def _metric(comparison: Comparison, metric: str) -> str:
    results = comparison.of(metric)
    with_gap = any(result.summary and result.summary.optimality_gap for result in results)
    heading = ("", "N", "MEAN", "95% CI", "IQM", "95% CI", "STD", "MIN", "MAX", "BEST", *(["GAP"] if with_gap else []))
    rows = [heading, *(_metric_row(result, with_gap) for result in results)]
    best = "lowest" if any(result.lowest_is_best for result in results) else "highest"
    if comparison.limit is None:
        when = f"the last value of each run; BEST: the {best} of any run at any time"
    else:
        until = f"{comparison.limit:,.0f} {AXES[comparison.axis]}"
        when = f"the last value of each run up to {until}; BEST: the {best} of any run until then"
    solved = sorted({result.threshold for result in results if result.threshold is not None})
    gap = f"; GAP: how far below {', '.join(map(number, solved))} on average" if with_gap else ""
    return f"{metric}: {when}{gap}\n{aligned(rows, right=(1, 2, 4, 6, 7, 8, 9, 10))}"


def _metric_row(result: Result, with_gap: bool) -> tuple[str, ...]:
    summary = result.summary
    if summary is None:
        return (result.group.letter, "0", *[NO_VALUE] * (9 if with_gap else 8))
    gap = [value(summary.optimality_gap.value) if summary.optimality_gap else NO_VALUE] if with_gap else []
    return (
        result.group.letter,
        str(summary.count),
        number(summary.mean.value),
        interval(summary.mean.interval),
        number(summary.iqm.value),
        interval(summary.iqm.interval),
        value(summary.std),
        number(summary.low),
        number(summary.high),
        value(result.best),
        *gap,
    )


def _improvements(comparison: Comparison, metric: str) -> str:
    pairs = [each for each in comparison.improvements if each.metric == metric]
    if not pairs:
        return ""
    letters = {}
    for group in comparison.groups:
        letters.setdefault(group.method_label, []).append(group.letter)
    rows = [("", "P", "95% CI")]
    rows.extend(
        (f"{'+'.join(letters[each.first])} > {'+'.join(letters[each.second])}", *_chance(each.probability))
        for each in pairs[:_MOST_PAIRS]
    )
    more = f"\n  ... and {len(pairs) - _MOST_PAIRS} more pairs (--json has all)" if len(pairs) > _MOST_PAIRS else ""
    return f"{metric}: the chance that a run of one is higher than a run of the other\n{aligned(rows)}{more}"


def _chance(found: Estimate) -> tuple[str, str]:
    ends = found.interval
    return f"{found.value:.2f}", f"[{ends.low:.2f}, {ends.high:.2f}]" if ends else NO_VALUE


def _settings(comparison: Comparison) -> str:
    if not comparison.settings:
        return "no setting differs" if len(comparison.members) > 1 else ""
    rows = [("", *(group.letter for group in comparison.groups))]
    rows.extend((each.key, *map(_shortened, each.values)) for each in comparison.settings)
    return f"settings that differ\n{aligned(rows)}"


def _shortened(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[: _LONGEST_CELL - 1]}…"

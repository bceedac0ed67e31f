"""What a reader must know before believing a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from etude.comparison.config_diff import Difference, is_telling
from etude.comparison.curves import AXES
from etude.comparison.results import Comparison, ends

_FINE = ("finished", "stopped")
_MOST_NAMED = 4


def notes(comparison: Comparison) -> list[str]:
    """Return a line for everything that makes the numbers less than they seem."""
    return [*_unread(comparison), *_what_differs(comparison), *_which_runs(comparison), *_numbers(comparison)]


def _unread(comparison: Comparison) -> Iterator[str]:
    for member in comparison.members:
        yield from member.problems


def _what_differs(comparison: Comparison) -> Iterator[str]:
    environments = sorted({member.environment for member in comparison.members})
    if len(environments) > 1:
        yield f"different environments ({', '.join(environments)}): their values have different scales"
    for commits in comparison.code:
        yield f"different code: {_by_group(comparison, commits)}; the difference may come from there"
    telling = [package for package in comparison.packages if is_telling(package.key)]
    if telling:
        shown = "; ".join(f"{package.key} {_by_group(comparison, package)}" for package in telling)
        yield f"different versions: {shown}; the difference may come from there"
    others = [package.key for package in comparison.packages if not is_telling(package.key)]
    if others:
        yield f"{_some(others)} differ in version too"


def _which_runs(comparison: Comparison) -> Iterator[str]:
    reached = ends(comparison.members, comparison.axis)
    shortest, longest = min(reached.values(), default=0.0), max(reached.values(), default=0.0)
    # Seconds are never the same; only counters can be.
    if comparison.limit is None and shortest != longest and comparison.axis != "time":
        lengths = f"{shortest:,.0f} to {longest:,.0f} {AXES[comparison.axis]}"
        yield f"unequal lengths ({lengths}): each run is taken at its own end; --at common takes all at {shortest:,.0f}"
    if comparison.limit is not None:
        short = [run for run, end in reached.items() if end < comparison.limit]
        if short:
            yield f"ended before {comparison.limit:,.0f} {AXES[comparison.axis]} and taken at their own end: {_some(short)}"
    unfinished = [f"{m.id} ({m.facts.status})" for m in comparison.members if m.facts.status not in _FINE]
    if unfinished:
        yield f"not finished: {_some(unfinished)}"
    for group in comparison.groups:
        counts = Counter((member.setup, member.facts.seed) for member in group.members)
        twice = sorted({seed for (_, seed), count in counts.items() if count > 1 and seed is not None})
        if twice:
            several = f"{group.letter} has several runs of seed {', '.join(map(str, twice))}"
            yield f"{several}: a seed run again is no new evidence, and the intervals are too narrow"


def _numbers(comparison: Comparison) -> Iterator[str]:
    for result in comparison.results:
        of = f"of {len(result.group.members)} runs of {result.group.letter}"
        if result.not_finite:
            yield f"{result.metric}: {result.not_finite} {of} ended at NaN or infinity: left out of the averages"
        if result.missing and len(result.missing) < len(result.group.members):
            yield f"{result.metric}: no value in {len(result.missing)} {of}: {_some(result.missing)}"
    single = [group.letter for group in comparison.groups if len(group.members) == 1]
    if single:
        yield f"one run only, so no interval: {', '.join(single)}"


def _by_group(comparison: Comparison, difference: Difference) -> str:
    return ", ".join(f"{group.letter} {value}" for group, value in zip(comparison.groups, difference.values, strict=True))


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

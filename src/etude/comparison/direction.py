"""Of which metrics less is better."""

from __future__ import annotations

from collections.abc import Sequence

from etude.comparison.members import Member

_LESS = ("loss", "error", "regret", "cost", "falls", "violations")


def lowest_is_best(metric: str, members: Sequence[Member]) -> bool:
    """Whether the lowest value is the best: as the runs say of what they monitor, else by the metric's name."""
    modes = {member.facts.best_mode for member in members if member.facts.best_metric == metric}
    if len(modes) == 1:
        return modes == {"min"}
    words = metric.rpartition("/")[2].split("_")
    return any(word in _LESS for word in words)

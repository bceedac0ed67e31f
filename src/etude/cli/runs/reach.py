"""`etude runs reach`: wall-clock and steps to a threshold."""

from __future__ import annotations

import statistics
from typing import Any

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunNames, RunsFolder
from etude.cli.runs.chosen import RunFilters, RunGroup, chosen_runs
from etude.errors import UserError


def reach(
    *selected: RunNames,
    threshold: float | None = None,
    metric: str = "eval/return_mean",
    filters: RunFilters = None,
    group: RunGroup = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Say how long runs took until a metric first reached a threshold: seconds of training, and environment steps.

    Parameters
    ----------
    threshold
        What is to be reached. Default: the return at which the environment counts as solved.
    metric
        Which metric; evaluations by default.
    """
    from etude.comparison.direction import lowest_is_best
    from etude.comparison.groups import make_groups
    from etude.comparison.members import read_member
    from etude.runs.thresholds import first_reached
    from etude.telemetry.readable import duration

    members = [read_member(path) for path in dict.fromkeys(chosen_runs(selected, filters or (), group, runs))]
    if not any(metric in member.metrics for member in members):
        raise UserError(f"--metric {metric}: no run has it")
    found: list[dict[str, Any]] = []
    for each in make_groups(members, None):
        reached_seconds = []
        for member in each.members:
            wanted = _threshold(member.facts.config) if threshold is None else threshold
            if wanted is None:
                raise UserError(f"--threshold: {member.environment} has none of its own; name one")
            at = first_reached(member.rows, metric, wanted, lowest_is_best=lowest_is_best(metric, [member]))
            reached_seconds += [] if at is None else [at.seconds]
            facts = {"run": member.id, "group": each.label, "seed": member.facts.seed, "threshold": wanted}
            found.append({**facts, "env_steps": at and at.env_steps, "seconds": at and at.seconds})
            if not as_json:
                took = "not reached" if at is None else f"{duration(at.seconds)} ({at.seconds:.1f} s), {at.env_steps:,} steps"
                say(f"{member.id}  {metric} {wanted:g}: {took}")
        if not as_json and len(each.members) > 1:
            middle = f", median {duration(statistics.median(reached_seconds))}" if reached_seconds else ""
            say(f"  {each.label}: {len(reached_seconds)} of {len(each.members)} reached it{middle}")
    if as_json:
        emit_json(found)
    return 0


def _threshold(config: dict[str, Any]) -> float | None:
    for key in ("training.return_threshold", "environment.spec.return_threshold"):
        if isinstance(config.get(key), int | float):
            return float(config[key])
    return None

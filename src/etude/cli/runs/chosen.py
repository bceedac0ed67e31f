"""Several runs named at once: by selectors, by filters, or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from etude.cli.places import existing_runs_root, find_run
from etude.errors import UserError

RunFilters = Annotated[
    list[str] | None,
    Parameter(
        name=["--filter", "-f"],
        help="Take every run that meets this too, such as algorithm=ppo or eval/return_mean>400; several must all hold.",
    ),
]
RunGroup = Annotated[
    str | None,
    Parameter(help="Take every run of this group too, or of groups such as sweep-*; with --filter, those that meet both."),
]
GroupBy = Annotated[
    str | None,
    Parameter(
        help="What makes a group: setup (all but the seed; the default), group, name, algorithm, environment, run, seed, or "
        "the name of a setting, such as algorithm.gamma."
    ),
]
At = Annotated[
    str,
    Parameter(help="Where values are taken: last (each run's end), common (the end of the shortest), or a number on the axis."),
]
Axis = Annotated[Literal["env_steps", "decisions", "updates", "episodes", "time"], Parameter(help="What curves run over.")]


def chosen_runs(selectors: Sequence[str], filters: Sequence[str], group: str | None, runs: Path | None) -> list[Path]:
    """Return the directories of the runs that are named or that meet every filter, oldest first among the latter."""
    if not selectors and not filters and group is None:
        raise UserError("which runs? name them (@last, an id, the beginning of one), or use --filter or --group")
    paths = [find_run(selector, runs).run.path for selector in selectors]
    if filters or group is not None:
        from etude.comparison.spelling import our_words
        from etude.runs.conditions import Condition
        from etude.runs.index import RunIndex
        from etude.runs.run_query import Query

        root = existing_runs_root(runs)
        conditions = our_words(filters)
        if group is not None:
            conditions.append(Condition(f"group={group}", "group", "=", group))
        found = Query(conditions).apply(RunIndex(root).read().runs)
        if not found:
            raise UserError(f"no run in {root.absolute()} meets {' and '.join(condition.text for condition in conditions)}")
        paths.extend(run.path for run in reversed(found))
    return paths


def split_metrics(words: Sequence[str]) -> list[str]:
    """Return the metric names in words such as ``eval/return_mean,train/*``, in our spelling."""
    from etude.comparison.spelling import our_spelling

    return [our_spelling(name) for word in words for part in word.split(",") if (name := part.strip())]

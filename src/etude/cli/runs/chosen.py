"""Several runs named at once: by selectors, by filters, or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.cli.places import find_run, runs_root
from etude.errors import UserError


def chosen_runs(selectors: Sequence[str], filters: Sequence[str], group: str | None, runs: Path | None) -> list[Path]:
    """Return the directories of the runs that are named or that meet every filter, oldest first among the latter."""
    if not selectors and not filters and group is None:
        raise UserError("which runs? name them (@last, an id, the beginning of one), or use --filter or --group")
    paths = [find_run(selector, runs).run.path for selector in selectors]
    if filters or group is not None:
        from etude.cli.runs.spelling import our_words
        from etude.runs.conditions import Condition
        from etude.runs.index import RunIndex
        from etude.runs.run_query import Query

        root = runs_root(runs)
        if not root.is_dir():
            raise UserError(f"there is no runs directory {root.absolute()}")
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
    from etude.cli.runs.spelling import our_spelling

    return [our_spelling(name) for word in words for part in word.split(",") if (name := part.strip())]

"""Which runs, in which order, how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.errors import UserError
from etude.runs.conditions import Condition
from etude.runs.indexed_run import IndexedRun
from etude.runs.run_keys import RunKeys, is_result, value_of


class Query:
    """A request for runs: every condition must hold; the order is newest first unless `sort` names a key."""

    def __init__(
        self,
        conditions: Sequence[str | Condition] = (),
        *,
        sort: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise UserError(f"limit {limit}: must be at least 0 (0 is all)")
        self._conditions = [Condition.parse(each) if isinstance(each, str) else each for each in conditions]
        self._sort, self._reverse, self._limit = sort, reverse, limit

    def apply(self, runs: Sequence[IndexedRun]) -> list[IndexedRun]:
        """Return the runs it asks for; `runs` come newest first."""
        chosen = self.matching(runs)
        return chosen[: self._limit] if self._limit else chosen

    def matching(self, runs: Sequence[IndexedRun]) -> list[IndexedRun]:
        """Return all runs that meet the conditions, in order, whatever the limit."""
        keys = RunKeys(runs)
        tests = [condition.test(keys) for condition in self._conditions]
        chosen = [run for run in runs if all(test(run) for test in tests)]
        if self._sort is not None:
            return sort_runs(chosen, keys.resolve(self._sort), reverse=self._reverse)
        return chosen[::-1] if self._reverse else chosen


def sort_runs(runs: Sequence[IndexedRun], key: str, *, reverse: bool = False) -> list[IndexedRun]:
    """Sort by a resolved key: results with the highest (or newest) first, all else ascending; runs without it last.

    Where all runs monitor something of which the lowest is the best, the lowest comes first.
    """
    pairs = [(value, run) for run in runs if not _is_missing(value := value_of(run, key))]
    missing = [run for run in runs if _is_missing(value_of(run, key))]
    descending = is_result(key) and not all(_lowest_is_best(run, key) for _, run in pairs)
    ordered = sorted(pairs, key=lambda pair: _order(pair[0]), reverse=descending != reverse)
    return [run for _, run in ordered] + missing


def _lowest_is_best(run: IndexedRun, key: str) -> bool:
    return run.best_mode == "min" and key in ("best", "last", run.best_metric)


def _is_missing(value: Any) -> bool:
    return value is None or value != value or value == []


def _order(value: Any) -> tuple[int, Any]:
    # Settings may be of several types: numbers before words.
    if isinstance(value, int | float):
        return 0, value
    return 1, str(value).lower()

"""The runs that a page lists: which, in which order, with which columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from etude.comparison.spelling import our_spelling, our_words
from etude.errors import UserError
from etude.runs.indexed_run import IndexedRun
from etude.runs.run_keys import FACTS, RunKeys, value_of
from etude.runs.run_query import Query

_FACTS = (
    "id", "name", "group", "tags", "environment", "algorithm", "seed", "status", "created", "env_steps", "total_steps",
    "updates", "episodes", "elapsed_s", "best", "best_step", "last",
)  # fmt: skip
_OPERATORS = set("=<>")
_LONGEST_WORD = 300
_MOST_WORDS = 30
_LONGEST_TEXT = 200
_MOST_COLUMNS = 12


def words_of(text: str) -> list[str]:
    """Return the words of a line of filters; quotes keep words with spaces together, as in a shell."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"filter: {str(error).lower()}") from None
    if len(words) > _MOST_WORDS or any(len(word) > _LONGEST_WORD for word in words):
        raise UserError(f"filter: at most {_MOST_WORDS} words of {_LONGEST_WORD} letters")
    return words


def chosen_runs(runs: Sequence[IndexedRun], text: str, sort: str | None = None, *, reverse: bool = False) -> list[IndexedRun]:
    """Return the runs that a line of filters asks for: conditions as `etude runs list --filter`, and words to search for."""
    words = words_of(text)
    conditions = [word for word in words if set(word) & _OPERATORS]
    searched = [word.lower() for word in words if word not in conditions]
    query = Query(our_words(conditions), sort=our_spelling(sort) if sort else None, reverse=reverse)
    return [run for run in query.matching(runs) if all(_mentions(run, word) for word in searched)]


def table(runs: Sequence[IndexedRun], everything: Sequence[IndexedRun], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return runs as rows of facts; `columns` are further keys, of metrics and settings."""
    if len(columns) > _MOST_COLUMNS:
        raise UserError(f"at most {_MOST_COLUMNS} columns can be added")
    keys = RunKeys(everything)
    resolved = {column: keys.resolve(our_spelling(column)) for column in columns}
    rows = []
    for run in runs:
        row = {name: _short(FACTS[name](run)) for name in _FACTS}
        more = {column: _short(value_of(run, key)) for column, key in resolved.items()}
        rows.append({**row, "best_metric": run.best_metric, **({"more": more} if more else {})})
    return rows


def known_keys(runs: Sequence[IndexedRun]) -> dict[str, list[str]]:
    """Return what can be filtered by, sorted by and shown: metrics and settings that any run has."""
    metrics = sorted({name for run in runs for name in run.metrics})
    settings = sorted({name for run in runs for name in run.config if not name.startswith("_resolved.")})
    return {"facts": [name for name in FACTS if name != "path"], "metrics": metrics[:2000], "settings": settings[:4000]}


def _mentions(run: IndexedRun, word: str) -> bool:
    texts = (run.id, run.name, run.group, run.environment, run.algorithm, run.status, *run.tags)
    return any(word in text.lower() for text in texts if text)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, list | tuple):
        return [_short(item) for item in value[:50]]
    return value if value is None or isinstance(value, int | float | bool) else str(value)[:_LONGEST_TEXT]

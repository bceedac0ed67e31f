"""What a word names in a run: one of its facts, a metric, or a setting. Filters, sorting and columns all go by these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from etude.errors import UserError, did_you_mean
from etude.runs.indexed_run import IndexedRun


def age_seconds(run: IndexedRun) -> float | None:
    """Return how long ago a run was created."""
    created = run.created_at
    return (datetime.now(UTC) - created).total_seconds() if created else None


FACTS: dict[str, Callable[[IndexedRun], Any]] = {
    "id": lambda run: run.id,
    "path": lambda run: str(run.path),
    "name": lambda run: run.name,
    "group": lambda run: run.group,
    "tags": lambda run: list(run.tags),
    "environment": lambda run: run.environment,
    "algorithm": lambda run: run.algorithm,
    "seed": lambda run: run.seed,
    "status": lambda run: run.status,
    "created": lambda run: run.created,
    "age": age_seconds,
    "env_steps": lambda run: run.env_steps,
    "updates": lambda run: run.updates,
    "episodes": lambda run: run.episodes,
    "total_steps": lambda run: run.total_steps,
    "elapsed_s": lambda run: run.elapsed_s,
    "best": lambda run: run.best,
    "best_step": lambda run: run.best_step,
    "last": lambda run: run.last,
    "commit": lambda run: run.commit,
    "config_hash": lambda run: run.config_hash,
    "setup_hash": lambda run: run.setup_hash,
    "cleaned": lambda run: run.cleaned,
}
ALSO = {
    "run": "id",
    "env": "environment",
    "algo": "algorithm",
    "tag": "tags",
    "date": "created",
    "steps": "env_steps",
    "elapsed": "elapsed_s",
}


_RESULTS = ("best", "best_step", "last", "env_steps", "updates", "episodes", "total_steps", "elapsed_s", "created")


class RunKeys:
    """The keys that some runs have."""

    def __init__(self, runs: Sequence[IndexedRun]) -> None:
        self._runs = runs

    def resolve(self, word: str) -> str:
        """Return the key that `word` means; UserError with the nearest one when no run has such a key."""
        key = ALSO.get(word.lower(), word)
        if key in FACTS or key in self._others:
            return key
        if f"{key}_mean" in self._others:
            return f"{key}_mean"  # eval/return
        if not self._runs:
            return key  # without a run nothing is known of metrics and settings, and nothing will be found
        raise UserError(f"key '{word}': no run has it{self._hint(word)}")

    def _hint(self, word: str) -> str:
        same_end = sorted(key for key in self._others if key.endswith((f".{word}", f"/{word}")))
        if same_end:
            return f"; did you mean {' or '.join(repr(key) for key in same_end[:3])}?"
        return did_you_mean(word, [*FACTS, *ALSO, *sorted(self._others), *(key.removesuffix("_mean") for key in self._others)])

    @cached_property
    def _others(self) -> set[str]:
        return {key for run in self._runs for key in (*run.metrics, *run.config)}


def value_of(run: IndexedRun, key: str) -> Any:
    """Return what a resolved key is in this run, None when it has no such thing."""
    if key in FACTS:
        return FACTS[key](run)
    return run.metrics[key] if key in run.metrics else run.config.get(key)


def is_result(key: str) -> bool:
    """Whether a key is a measured number, of which more is shown first."""
    return key in _RESULTS or "/" in key

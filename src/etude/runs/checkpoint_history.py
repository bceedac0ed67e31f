"""Which checkpoints a run's present state descends from, and which of those were the best.

Whoever resumes from an earlier checkpoint abandons the later ones: they stay until they are thinned out, and are no part of
what follows. Every checkpoint notes the sequences that its history leaves out, so that each alone tells what came before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

Spans = tuple[tuple[int, int], ...]
"""The first and the last sequence of each stretch that was abandoned."""


class Saved(Protocol):
    """What a history goes by."""

    @property
    def name(self) -> str:
        """The folder's name."""
        ...

    @property
    def sequence(self) -> int:
        """The number of the save."""
        ...

    @property
    def is_best(self) -> bool:
        """Whether it was the best when it was saved."""
        ...

    @property
    def abandoned(self) -> Spans:
        """What its history leaves out."""
        ...


AnySaved = TypeVar("AnySaved", bound=Saved)


def abandoned_spans(metadata: object) -> Spans:
    """Return what the metadata of a manifest says was abandoned; whatever else stands there is nothing."""
    found = metadata.get("abandoned") if isinstance(metadata, Mapping) else None
    pairs = [pair for pair in found if isinstance(pair, list) and len(pair) == 2] if isinstance(found, list) else []
    return tuple((first, last) for first, last in pairs if type(first) is int and type(last) is int)


def history_of(newest: AnySaved, found: Sequence[AnySaved]) -> list[AnySaved]:
    """Return the checkpoints up to `newest` that it descends from, and itself."""
    return [
        saved
        for saved in found
        if saved.sequence <= newest.sequence and not any(first <= saved.sequence <= last for first, last in newest.abandoned)
    ]


def best_until(newest: AnySaved, found: Sequence[AnySaved]) -> str | None:
    """Return the name of the best checkpoint as it was when `newest` was saved; `is_best` is what each manifest says."""
    best = [saved for saved in history_of(newest, found) if saved.is_best]
    return max(best, key=lambda saved: saved.sequence).name if best else None


class Ranked(Saved, Protocol):
    """What ranking goes by."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """What was said of it when it was saved."""
        ...


AnyRanked = TypeVar("AnyRanked", bound=Ranked)


def best_ranked(newest: AnyRanked, found: Sequence[AnyRanked], count: int) -> list[str]:
    """Return the names of the `count` best of those evaluated by the metric that counted last, the best first."""
    ranked = [(rank, saved) for saved in history_of(newest, found) if (rank := _rank(saved.metadata)) is not None]
    if not ranked:
        return []
    (metric, mode, _), _ = max(ranked, key=lambda pair: pair[1].sequence)
    comparable = [(value, saved) for (its_metric, its_mode, value), saved in ranked if (its_metric, its_mode) == (metric, mode)]
    sign = 1 if mode == "min" else -1
    comparable.sort(key=lambda pair: (sign * pair[0], pair[1].sequence))
    return [saved.name for _, saved in comparable[:count]]


def _rank(metadata: Mapping[str, object]) -> tuple[str, str, float] | None:
    rank = metadata.get("ranked")
    if not isinstance(rank, Mapping):
        return None
    metric, mode, value = rank.get("metric"), rank.get("mode"), rank.get("value")
    if not isinstance(metric, str) or not isinstance(mode, str) or not isinstance(value, float) or not math.isfinite(value):
        return None
    return metric, mode, value

"""Metrics by the names that other systems gave them, in filters, in --sort and in --columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from etude.runs.conditions import Condition
from etude.telemetry.names import canonical


def our_spelling(key: str) -> str:
    """Return our name of a metric; any other word stays as it is."""
    return canonical(key.strip())


def our_words(filters: Iterable[str]) -> list[Condition]:
    """Return the conditions of --filter with our names."""
    conditions = [Condition.parse(text) for text in filters]
    return [replace(condition, key=our_spelling(condition.key)) for condition in conditions]

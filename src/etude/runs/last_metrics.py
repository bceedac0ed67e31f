"""The end of a metrics file: what was logged last, without reading all of it."""

from __future__ import annotations

import os
from pathlib import Path

from etude.files.regular import open_descriptor

# Rows differ in what they hold (an update, an episode, an evaluation): together these hold everything that is logged often.
_ROWS = 8
_LONGEST_TAIL = 256 * 1024
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def last_metrics(path: Path) -> dict[str, float]:
    """Return the last known value of each metric and counter: from the last rows and the last evaluation."""
    try:
        with open(open_descriptor(path, os.O_RDONLY), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LONGEST_TAIL))
            lines = file.read(_LONGEST_TAIL).split(b"\n")
    except OSError:
        return {}
    # What follows the last line end is still being written; a row that the tail cuts in two is no row.
    whole = lines[1 if size > _LONGEST_TAIL else 0 : -1]
    evaluated = next((line for line in reversed(whole[:-_ROWS]) if b'"eval/' in line), b"")
    values: dict[str, float] = {}
    for line in (evaluated, *whole[-_ROWS:]):
        values |= _row(line)
    return values


def _row(line: bytes) -> dict[str, float]:
    from etude.files.documents import DocumentError, parse_json  # here: most listings find every run in the index

    try:
        row = parse_json(line)
    except DocumentError:
        return {}
    if not isinstance(row, dict):
        return {}
    numbers = {name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for name, value in row.items()}
    return {name: value for name, value in numbers.items() if isinstance(value, int | float) and not isinstance(value, bool)}

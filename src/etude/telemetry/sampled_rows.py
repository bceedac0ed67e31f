"""The rows of a metrics file for a picture of it: all of a small file, an even sample of a large one, in bounded time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from etude.files.regular import open_descriptor
from etude.telemetry.jsonl import decode
from etude.telemetry.names import Row

MOST_ROWS = 2000
"""Of each kind: with an evaluation, and without. A curve on a screen has fewer points."""
_MOST_BYTES = 2**26
_WINDOWS = 128
_EVALUATED = b'"eval/'


class Sample(NamedTuple):
    """Some of a run's rows, in order, the last one always among them."""

    rows: Sequence[Row]
    is_whole: bool
    """Whether these are all the rows there are."""


def sampled_rows(path: Path, most: int = MOST_ROWS) -> Sample:
    """Read a metrics file; lines that are no rows are left out, and a file that isn't there has none.

    Rows of evaluations are few and are what one looks for: they are kept before any other.
    """
    try:
        with open(open_descriptor(path, os.O_RDONLY), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            lines = _all_lines(file, size) if size <= _MOST_BYTES else _windows(file, size)
    except FileNotFoundError:
        return Sample([], True)
    evaluated = [number for number, line in enumerate(lines) if _EVALUATED in line]
    others = [number for number, line in enumerate(lines) if _EVALUATED not in line]
    chosen = sorted([*_thinned(evaluated, most), *_thinned(others, most)])
    rows = [row for number in chosen if (row := decode(lines[number])) is not None]
    return Sample(rows, size <= _MOST_BYTES and len(chosen) == len(lines))


def _all_lines(file: BinaryIO, size: int) -> list[bytes]:
    file.seek(0)
    return [line for line in file.read(size).split(b"\n") if line]


def _windows(file: BinaryIO, size: int) -> list[bytes]:
    """The whole lines within windows that lie evenly over a file, its beginning and its end among them."""
    length = _MOST_BYTES // _WINDOWS
    found: list[bytes] = []
    for window in range(_WINDOWS):
        start = window * (size - length) // (_WINDOWS - 1)
        file.seek(start)
        lines = file.read(length).split(b"\n")
        is_first, is_last = window == 0, window == _WINDOWS - 1
        found += [line for line in lines[0 if is_first else 1 : None if is_last else -1] if line]
    return found


def _thinned(numbers: Sequence[int], most: int) -> list[int]:
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[position * (len(numbers) - 1) // (most - 1)] for position in range(most)]

"""A run's metrics.jsonl in memory, by columns, and never read twice: each look takes in what was appended since the last.

Rows of one kind (an update's, an evaluation's) have the same names, so they are kept together as tables. A training that was
resumed from an earlier checkpoint has cut its file and gone on: the last bytes that were read are compared at each look, and
where they are others now, all is read anew.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etude.comparison.curves import Curve
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import open_descriptor
from etude.telemetry.names import COUNTERS

TIME = "time/elapsed_s"
_CHUNK = 2**20
_LONGEST_ROW = 2**20
_LARGEST_FILE = 2**31
_REMEMBERED = 64
"""Bytes by which a file is known again."""
_MOST_NAMES = 2000
_MOST_KINDS = 500


class MetricFile:
    """One run's metrics; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        """Grows with every change of what is in memory."""
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._offset, self._tail, self._inode = 0, b"", -1
        self._rows = 0
        self._tables: dict[tuple[str, ...], _Table] = {}
        self._names: set[str] = set()
        self._curves: dict[tuple[str, str], Curve] = {}

    @property
    def size(self) -> int:
        """Bytes of memory that its numbers take."""
        tables = sum(table.size for table in list(self._tables.values()))
        return tables + sum(line.x.nbytes + line.y.nbytes for line in list(self._curves.values()))

    @property
    def names(self) -> list[str]:
        """The metrics that any row has, sorted; counters aside."""
        return sorted(self._names.difference(COUNTERS))

    def read_on(self) -> bool:
        """Take in the next piece of the file, and say whether that was all there is for now."""
        with self._lock:
            try:
                with open(open_descriptor(self.path, os.O_RDONLY), "rb") as file:
                    return self._read_piece(file)
            except OSError:
                if self._offset:
                    self._forget()
                    self.version += 1
                return True

    def _read_piece(self, file: Any) -> bool:
        status = os.fstat(file.fileno())
        if status.st_ino == self._inode and status.st_size == self._offset:
            return True
        file.seek(max(0, self._offset - len(self._tail)))
        if self._offset and (status.st_size < self._offset or file.read(len(self._tail)) != self._tail):
            self._forget()
            self.version += 1
            file.seek(0)
        self._inode = status.st_ino
        if self._offset >= _LARGEST_FILE:
            return True
        piece = file.read(_CHUNK)
        while piece and b"\n" not in piece and len(piece) < _LONGEST_ROW:
            more = file.read(_CHUNK)
            if not more:
                return True  # half a row, still being written
            piece += more
        end = piece.rfind(b"\n") + 1
        if not end:
            # Half a row; or one that no training writes, which is passed over.
            self._offset += len(piece) if len(piece) >= _LONGEST_ROW else 0
            self._tail = piece[-_REMEMBERED:] if len(piece) >= _LONGEST_ROW else self._tail
            return len(piece) < _LONGEST_ROW
        self._take(piece[:end])
        self._offset += end
        self._tail = (self._tail + piece[:end])[-_REMEMBERED:]
        return self._offset >= status.st_size or len(piece) < _CHUNK

    def _take(self, data: bytes) -> None:
        by_kind: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
        for row in _rows(data):
            kind = tuple(row)
            places, values = by_kind.setdefault(kind, ([], []))
            places.append(self._rows)
            values.append(tuple(row.values()))
            self._rows += 1
        for kind, (places, values) in by_kind.items():
            table = self._tables.get(kind)
            if table is None:
                if len(self._tables) >= _MOST_KINDS or len(self._names | set(kind)) > _MOST_NAMES:
                    continue
                table = self._tables[kind] = _Table(kind)
                self._names.update(kind)
            table.append(places, values)
        self._curves.clear()
        self.version += 1

    def curve(self, metric: str, axis: str) -> Curve:
        """Return the finite values of a metric over an axis, in its order; of several at one position the last counts."""
        with self._lock:
            known = self._curves.get((metric, axis))
            if known is None:
                known = self._curves[metric, axis] = self._make_curve(metric, TIME if axis == "time" else axis)
            return known

    def _make_curve(self, metric: str, position: str) -> Curve:
        tables = [table for table in self._tables.values() if metric in table.columns and position in table.columns]
        if not tables:
            return Curve(np.empty(0), np.empty(0))
        order = np.argsort(np.concatenate([table.places for table in tables]), kind="stable")
        x = np.concatenate([table.column(position) for table in tables])[order]
        y = np.concatenate([table.column(metric) for table in tables])[order]
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
        if np.any(np.diff(x) < 0):
            by_position = np.argsort(x, kind="stable")
            x, y = x[by_position], y[by_position]
        last = np.append(np.diff(x) > 0, True) if len(x) else np.empty(0, dtype=bool)
        return Curve(x[last], y[last])


class _Table:
    """Rows with the same names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = {name: number for number, name in enumerate(names)}
        self._parts: list[NDArray[np.float64]] = []
        self._places: list[NDArray[np.int64]] = []

    @property
    def size(self) -> int:
        return sum(part.nbytes for part in self._parts) + sum(part.nbytes for part in self._places)

    @property
    def places(self) -> NDArray[np.int64]:
        """Which rows of the file they are."""
        self._places = [np.concatenate(self._places)]
        return self._places[0]

    def column(self, name: str) -> NDArray[np.float64]:
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0][:, self.columns[name]]

    def append(self, places: list[int], values: list[tuple[Any, ...]]) -> None:
        if not self.columns:
            return
        try:
            table = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            table = np.array([[_number(value) for value in row] for row in values], dtype=np.float64)
        self._parts.append(table.reshape(len(values), len(self.columns)))
        self._places.append(np.array(places, dtype=np.int64))


def _rows(data: bytes) -> list[dict[str, Any]]:
    lines = data.split(b"\n")
    try:
        # All at once: ten times as quick as line by line.
        found = json.loads(b"[" + b",".join(line for line in lines if line) + b"]")
    except (ValueError, RecursionError):
        found = [_row(line) for line in lines]
    return [row for row in found if isinstance(row, dict)]


def _row(line: bytes) -> Any:
    try:
        return parse_json(line)
    except DocumentError:
        return None


def _number(value: object) -> float:
    # NaN and infinities are written as text.
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else float("nan")
    except (ValueError, OverflowError):
        return float("nan")

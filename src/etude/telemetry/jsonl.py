"""The record of a run's metrics: one JSON object a line, only ever appended to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.errors import EtudeError
from etude.files.atomic import fsync_directory, write_bytes_atomic
from etude.files.csv_text import csv_text
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import open_descriptor, own_folder, read_bytes
from etude.telemetry.names import COUNTERS, Row

LARGEST = 2**34
# Beyond it readers differ, and ours takes none.
_LARGEST_WHOLE = 2**63
NO_ROWS = {"metrics_offset": 0}
# Bare NaN and Infinity aren't JSON and stop other readers (browsers, jq), so they are written as these strings.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonlSink:
    """Append metric rows to a file; each row is with the operating system when `write` returns."""

    def __init__(self, path: Path) -> None:
        own_folder(path.parent)
        self._file = open(open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)  # noqa: SIM115
        self._path = path
        self._size, self._hash = 0, hashlib.sha256()
        self._end_at_a_line()
        fsync_directory(path.parent)

    def write(self, rows: Sequence[Row]) -> None:
        """Append the rows; on a full disk the file is cut back to its last whole row and the error is raised."""
        data = "".join(_encode(row) + "\n" for row in rows).encode()
        try:
            self._write(data)
        except OSError as error:
            # Where even that fails, the half row is cut off when the file is opened again.
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
            raise _named(error, self._path) from error
        self._size += len(data)
        self._hash.update(data)

    def flush(self) -> None:
        """Nothing waits here: every write has already gone to the operating system."""

    def sync(self) -> dict[str, Any]:
        """Make everything written survive a power cut, and return the file's length and hash, for `supersede` to go by."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _named(error, self._path) from error
        return {"metrics_offset": self._size, "metrics_sha256": self._hash.hexdigest()}

    def supersede(self, saved: Mapping[str, object], superseded: Path) -> int:
        """Move the rows past what `sync` said to `superseded` and go on from there; returns how many they were."""
        moved = supersede(self._path, saved, superseded)
        self._size, self._hash = 0, hashlib.sha256()
        self._end_at_a_line()
        return moved

    def close(self) -> None:
        """Sync and close the file."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _end_at_a_line(self) -> None:
        # After a power cut the file can end within a row; the next row must not be glued to it.
        data = read_bytes(self._path, LARGEST)
        whole, _ = _whole_lines(data)
        self._file.truncate(min(len(whole), len(data)))
        self._write(whole[len(data) :])
        self._size = len(whole)
        self._hash.update(whole)


def read_rows(path: Path) -> list[Row]:
    """Read all rows; a half-written last line (a power cut) is left out with a warning."""
    try:
        whole, torn = _whole_lines(read_bytes(path, LARGEST))
    except FileNotFoundError:
        raise EtudeError(f"{path}: there is no such metrics file") from None
    if torn:
        warnings.warn(f"{path}: the last line is incomplete (a power cut?) and is left out", UserWarning, stacklevel=2)
    rows: list[Row] = []
    for number, line in enumerate(whole.splitlines(), start=1):
        row = decode(line)
        if row is None:
            raise EtudeError(f"{path}: line {number} is not a metric row; the file is damaged")
        rows.append(row)
    return rows


def supersede(path: Path, saved: Mapping[str, object], superseded: Path) -> int:
    """Move the rows past those that a checkpoint knows to the end of `superseded` and return how many there were.

    `saved` is what `JsonlSink.sync` returned then, or NO_ROWS: a file that has lost or changed rows is an error.
    """
    data = _read_if_there(path)
    offset, digest = saved.get("metrics_offset"), saved.get("metrics_sha256")
    if type(offset) is not int or offset < 0:
        raise EtudeError(f"{path}: the checkpoint's position {str(offset)[:40]} is not one of bytes; the checkpoint is damaged")
    if offset > len(data):
        data = _put_back(path, data, offset, digest, superseded)
    if offset > len(data):
        raise EtudeError(
            f"{path}: {len(data)} bytes long, but the checkpoint was saved when it had {offset}; "
            "rows were removed from it since. Restore the file, or resume from an earlier checkpoint"
        )
    if offset > 0 and data[offset - 1 : offset] != b"\n":
        raise EtudeError(f"{path}: the checkpoint's position {offset} is not at the start of a row; the file was changed since")
    if digest is not None and digest != hashlib.sha256(data[:offset]).hexdigest():
        raise EtudeError(
            f"{path}: rows in it have changed since the checkpoint was saved. Restore the file, or resume from an earlier "
            "checkpoint"
        )
    moved, torn = _whole_lines(data[offset:])
    if not moved and not torn:
        return 0
    # The copy is safe on disk before the original is cut. A crash in between leaves the rows in both places, and
    # the next supersede finds them already copied.
    own_folder(superseded.parent)
    earlier = _read_if_there(superseded)
    if not earlier.endswith(moved):
        _replace(superseded, earlier + moved)
    with open(open_descriptor(path, os.O_RDWR), "r+b") as file:
        file.truncate(offset)
        os.fsync(file.fileno())
    return moved.count(b"\n")


def write_csv(jsonl_path: Path, csv_path: Path) -> None:
    """Write the same metrics as one wide table: counters first, then every name that any row has."""
    rows = read_rows(jsonl_path)
    names = {name for row in rows for name in row}
    columns = [name for name in COUNTERS if name in names] + sorted(names.difference(COUNTERS))
    _replace(csv_path, csv_text(columns, rows).encode())


def _encode(row: Row) -> str:
    return json.dumps({name: _to_json(value) for name, value in row.items()}, separators=(",", ":"))


def _to_json(value: float) -> float | str:
    if isinstance(value, int) and abs(value) < _LARGEST_WHOLE:
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def decode(line: bytes) -> dict[str, float] | None:
    """Return the row that a line is; None if it is none."""
    try:
        row = parse_json(line)
    except DocumentError:
        return None
    if not isinstance(row, dict):
        return None
    decoded: dict[str, float] = {}
    for name, value in row.items():
        number = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if not isinstance(number, int | float):
            return None
        decoded[name] = number
    return decoded


def _put_back(path: Path, data: bytes, offset: int, digest: object, superseded: Path) -> bytes:
    """Return the file with the rows that the checkpoint knew, if they were moved to `superseded` and nothing was saved since.

    So is it when a resume from an earlier checkpoint was killed before its first save: then it has never been.
    """
    moved, missing = _read_if_there(superseded), offset - len(data)
    known, start = hashlib.sha256(data), len(moved) - missing
    while start >= 0:
        candidate = known.copy()
        candidate.update(moved[start : start + missing])
        if candidate.hexdigest() == digest:
            _replace(path, data + moved[start : start + missing])
            _replace(superseded, moved[:start])
            return data + moved[start : start + missing]
        start = moved.rfind(b"\n", 0, start - 1) + 1 if start > 1 else -1
    return data


def _read_if_there(path: Path) -> bytes:
    try:
        return read_bytes(path, LARGEST)
    except FileNotFoundError:
        return b""


def _whole_lines(data: bytes) -> tuple[bytes, bool]:
    """Return `data` up to its last whole row, ending in a newline, and whether half a row was left out."""
    end = data.rfind(b"\n") + 1
    rest = data[end:]
    if not rest:
        return data, False
    if decode(rest) is not None:  # only the newline itself is missing
        return data + b"\n", False
    return data[:end], True


def _replace(path: Path, data: bytes) -> None:
    try:
        write_bytes_atomic(path, data)
    except OSError as error:
        raise _named(error, path) from error


def _named(error: OSError, path: Path) -> OSError:
    """The same error with the file's name, which a write through a descriptor does not know."""
    return OSError(error.errno, error.strerror or str(error), str(path))

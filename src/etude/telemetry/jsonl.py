"""The record of a run's metrics: one JSON object a line, only ever appended to."""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from etude.errors import EtudeError
from etude.files.csv_text import csv_text
from etude.telemetry.names import COUNTERS, Row

# Bare NaN and Infinity aren't JSON and stop other readers (browsers, jq), so they are written as these strings.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonlSink:
    """Append metric rows to a file; each row is with the operating system when `write` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._path = path
        self._size = self._end_at_a_line()
        _sync_folder(path)

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

    def flush(self) -> None:
        """Nothing waits here: every write has already gone to the operating system."""

    def sync(self) -> int:
        """Make everything written survive a power cut, and return the file's length in bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _named(error, self._path) from error
        return self._size

    def rewind(self, offset: int, superseded: Path) -> int:
        """Move the rows past `offset` to `superseded` and go on from there; returns how many they were."""
        moved = rewind(self._path, offset, superseded)
        self._size = self._path.stat().st_size
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

    def _end_at_a_line(self) -> int:
        # After a power cut the file can end within a row; the next row must not be glued to it.
        data = self._path.read_bytes()
        whole, _ = _whole_lines(data)
        self._file.truncate(min(len(whole), len(data)))
        self._write(whole[len(data) :])
        return len(whole)


def read_rows(path: Path) -> list[Row]:
    """Read all rows; a half-written last line (a power cut) is left out with a warning."""
    if not path.exists():
        raise EtudeError(f"{path}: there is no such metrics file")
    whole, torn = _whole_lines(path.read_bytes())
    if torn:
        warnings.warn(f"{path}: the last line is incomplete (a power cut?) and is left out", UserWarning, stacklevel=2)
    rows: list[Row] = []
    for number, line in enumerate(whole.splitlines(), start=1):
        row = _decode(line)
        if row is None:
            raise EtudeError(f"{path}: line {number} is not a metric row; the file is damaged")
        rows.append(row)
    return rows


def rewind(path: Path, offset: int, superseded: Path) -> int:
    """Move the rows past byte `offset` to the end of `superseded` and return how many there were."""
    data = path.read_bytes() if path.exists() else b""
    if offset > len(data):
        raise EtudeError(
            f"{path}: {len(data)} bytes long, but the checkpoint was saved when it had {offset}; "
            "rows were removed from it since. Restore the file, or resume from an earlier checkpoint"
        )
    if offset > 0 and data[offset - 1 : offset] != b"\n":
        raise EtudeError(f"{path}: the checkpoint's position {offset} is not at the start of a row; the file was changed since")
    moved, torn = _whole_lines(data[offset:])
    if not moved and not torn:
        return 0
    # The copy is safe on disk before the original is cut. A crash in between leaves the rows in both places, and
    # the next rewind finds them already copied.
    superseded.parent.mkdir(parents=True, exist_ok=True)
    earlier = superseded.read_bytes() if superseded.exists() else b""
    if not earlier.endswith(moved):
        _replace(superseded, earlier + moved)
    with path.open("r+b") as file:
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
    if isinstance(value, int):
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _decode(line: bytes) -> dict[str, float] | None:
    try:
        row = json.loads(line)
    except ValueError:
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


def _whole_lines(data: bytes) -> tuple[bytes, bool]:
    """Return `data` up to its last whole row, ending in a newline, and whether half a row was left out."""
    end = data.rfind(b"\n") + 1
    rest = data[end:]
    if not rest:
        return data, False
    if _decode(rest) is not None:  # only the newline itself is missing
        return data + b"\n", False
    return data[:end], True


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        # On a full disk the half of a new file would take the room that others need.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _named(error, path) from error
        raise
    _sync_folder(path)


def _named(error: OSError, path: Path) -> OSError:
    """The same error with the file's name, which a write through a descriptor does not know."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows can't open a folder; its renames are journalled
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""Reads a file of tensors from a descriptor: no link is followed, nothing is mapped, no more is read than it says it has.

The format is that of safetensors, written by `etude.runs.tensor_file`. Rows of one column can be read without the rest, for
datasets that are larger than memory.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.datasets.manifest import DatasetError
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import open_descriptor
from etude.files.state_tree import STORABLE_DTYPES

LARGEST_HEADER = 2**20
_DTYPES = {word: dtype for dtype, word in STORABLE_DTYPES.items()}
_CHUNK = 2**22


@dataclass(frozen=True)
class Place:
    """Where a column lies in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class SegmentFile:
    """One open file; its columns by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = open_descriptor(path, os.O_RDONLY)
        except OSError as error:
            raise DatasetError(f"{path}: {error.strerror or error}") from None
        try:
            self.columns = self._read_header()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, name: str, first: int = 0, count: int | None = None) -> Tensor:
        """Return `count` rows of a column from row `first` on."""
        place = self.columns[name]
        count = place.shape[0] - first if count is None else count
        size = count * place.row_bytes
        data = bytearray(size)
        view, offset = memoryview(data), place.start + first * place.row_bytes
        done = 0
        while done < size:
            part = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not part:
                raise DatasetError(f"{self._path}: ends amid column '{name}'; take the dataset from its source again")
            done += part
        if not size:
            return torch.zeros((count, *place.shape[1:]), dtype=place.dtype)
        return torch.frombuffer(data, dtype=place.dtype).view(count, *place.shape[1:])

    def check(self, sha256: str, size: int) -> None:
        """Raise DatasetError unless the file has this size and hash."""
        digest, offset = hashlib.sha256(), 0
        if self._size == size:
            while chunk := os.pread(self._descriptor, _CHUNK, offset):
                digest.update(chunk)
                offset += len(chunk)
        if offset != size or digest.hexdigest() != sha256:
            raise DatasetError(f"{self._path}: is not what dataset.json says it was; take the dataset from its source again")

    def _read_header(self) -> dict[str, Place]:
        self._size = os.fstat(self._descriptor).st_size
        length = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        if not 2 <= length <= min(LARGEST_HEADER, self._size - 8):
            raise self._foreign(f"its header claims {length} bytes, the file has {self._size}")
        try:
            header = parse_json(os.pread(self._descriptor, length, 8))
        except DocumentError as error:
            raise self._foreign(str(error)) from None
        if not isinstance(header, dict):
            raise self._foreign("its header is not a mapping")
        return {name: self._place(name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"}

    def _place(self, name: str, entry: Any, base: int) -> Place:
        dtype = _DTYPES.get(str(entry.get("dtype"))) if isinstance(entry, dict) else None
        shape, offsets = (entry.get(key) if isinstance(entry, dict) else None for key in ("shape", "data_offsets"))
        wholes = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
        if dtype is None or len(offsets or ()) != 2 or not shape or not all(type(n) is int and n >= 0 for n in wholes):
            raise self._foreign(f"column {name[:60]!r} is not described")
        assert offsets is not None
        start, end = offsets
        if end - start != math.prod(shape) * dtype.itemsize or base + end > self._size:
            raise self._foreign(f"column {name[:60]!r} claims other bytes than it has")
        return Place(dtype, tuple(shape), base + start)

    def _foreign(self, reason: str) -> DatasetError:
        return DatasetError(f"{self._path}: no segment of a dataset ({reason})")


def as_numpy(tensor: Tensor) -> np.ndarray:
    """Return a column for other people's formats."""
    return tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()

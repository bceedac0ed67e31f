"""Frames in a file: entries of one shape that are read and written by calls of the system and never mapped, so take no memory.

Places are those of a store's memory. In the file each environment's slots lie in a row, so that a window is one stretch of it:

    place    slot · N + environment        position    environment · slots + slot        ends lie behind them, in both

The file has no name: it is gone with the process, however that ends, and nobody else can touch it. What must outlast the
process is in checkpoints.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.buffers.columns import as_array
from etude.errors import EtudeError, UserError
from etude.files.regular import own_folder

SMALLEST_FRAME = 1024
"""Bytes. Smaller parts of observations stay in memory where larger ones lie in a file."""
_advise = getattr(os, "posix_fadvise", None)  # some systems have none, and read when asked


def is_frame(size: int) -> bool:
    """Whether a part of an observation takes enough bytes to lie in a file."""
    return size >= SMALLEST_FRAME


class FrameFile:
    """(slots · N + N · ends, *frame), as much of a tensor as a store needs; one step's frames are given as (N, *frame)."""

    nbytes = 0
    """How much memory it takes."""

    def __init__(self, like: Tensor, slots: int, ends: int, folder: Path, name: str) -> None:
        self._slots, self._num_envs, self._name, self._folder = slots, len(like), name, folder
        self._first_end = slots * len(like)
        self.shape = torch.Size((self._first_end + len(like) * ends, *like.shape[1:]))
        self.dtype, self.ndim = like.dtype, like.ndim
        self._array_type = as_array(torch.empty(0, dtype=like.dtype)).dtype
        self._size = like[0].numel() * like.element_size()
        try:
            with tempfile.TemporaryFile(dir=own_folder(folder), buffering=0) as file:
                self._descriptor = os.dup(file.fileno())
        except OSError as error:
            if error.errno is not None and not isinstance(error, EtudeError):
                raise UserError(
                    f"buffers.{name}.folder={folder}: {error.strerror}; name a folder that can be written"
                ) from error
            raise
        weakref.finalize(self, os.close, self._descriptor)
        with self._named_in_errors():
            os.ftruncate(self._descriptor, self.disk_bytes)  # a hole: what was never written reads as zeros
        if _advise is not None:  # neighbours of what is read are not wanted
            _advise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def disk_bytes(self) -> int:
        """How long the file is."""
        return self.shape[0] * self._size

    def element_size(self) -> int:
        """Return the bytes of one number."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether frames could hold NaN."""
        return self.dtype.is_floating_point

    # ---- reading ------------------------------------------------------------------------------------------------------

    def index_select(self, dimension: int, index: Tensor) -> Tensor:
        """Return the frames at places (n,), as (n, *frame)."""
        assert dimension == 0, "places are the first dimension"
        found = torch.empty(len(index), self._size, dtype=torch.uint8)
        memory = found.numpy().reshape(-1).data
        runs = sorted((position, at, count) for at, position, count in _runs(self._positions(index.numpy())))
        if _advise is not None:  # all of them are on their way before the first is waited for
            for position, _, count in runs:
                _advise(self._descriptor, position * self._size, count * self._size, os.POSIX_FADV_WILLNEED)
        for position, at, count in runs:
            self._fill(memory[at * self._size : (at + count) * self._size], position * self._size)
        return found.view(self.dtype).view(len(index), *self.shape[1:])

    def __getitem__(self, places: slice | Tensor) -> Tensor:
        if isinstance(places, slice):
            places = torch.arange(*places.indices(self.shape[0]))
        return self.index_select(0, places.reshape(-1)).view(*places.shape, *self.shape[1:])

    def _fill(self, memory: memoryview, offset: int) -> None:
        while memory:
            with self._named_in_errors():
                count = os.preadv(self._descriptor, [memory], offset)
            if not count:
                raise EtudeError(
                    f"buffer '{self._name}': its file of frames in {self._folder} ends at byte {offset:,} of "
                    f"{self.disk_bytes:,}: something cut it; what was saved is whole, resume the run"
                )
            memory, offset = memory[count:], offset + count

    # ---- writing ------------------------------------------------------------------------------------------------------

    def __setitem__(self, places: slice | Tensor, frames: Tensor) -> None:
        if isinstance(places, slice):
            places = torch.arange(*places.indices(self.shape[0]))
        self._write(self._positions(places.reshape(-1).numpy()), as_array(frames))

    def _write(self, positions: np.ndarray, frames: np.ndarray) -> None:
        order = np.argsort(positions)
        data = np.ascontiguousarray(frames.reshape(len(positions), -1)[order], self._array_type)
        memory = data.reshape(-1).view(np.uint8).data
        for at, position, count in _runs(positions[order]):
            rest, offset = memory[at * self._size : (at + count) * self._size], position * self._size
            while rest:
                with self._named_in_errors():
                    written = os.pwrite(self._descriptor, rest, offset)
                rest, offset = rest[written:], offset + written

    def slots(self) -> _Slots:
        """Return what is written step by step."""
        return _Slots(self)

    def ends(self) -> _Ends:
        """Return what lies behind the slots."""
        return _Ends(self)

    # ---- both ---------------------------------------------------------------------------------------------------------

    def _positions(self, places: np.ndarray) -> np.ndarray:
        places = places.astype(np.int64)
        slot, env = np.divmod(places, self._num_envs)
        return np.where(places < self._first_end, env * self._slots + slot, places)

    @contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        """Within, an error of the system says which folder's disk it is about: a file without a name can't."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder)) from error


class _Slots:
    """The slots of a file: slot t of all environments, (N, *frame)."""

    def __init__(self, file: FrameFile) -> None:
        self._file, self._positions = file, np.arange(file._num_envs) * file._slots

    def __setitem__(self, slot: int, frames: np.ndarray) -> None:
        self._file._write(self._positions + slot, frames)

    def __getitem__(self, place: tuple[int, Any]) -> np.ndarray:
        slot, env = place
        return as_array(self._file[torch.tensor([slot * self._file._num_envs + int(env)])])


class _Ends:
    """The ends of a file, one frame each."""

    def __init__(self, file: FrameFile) -> None:
        self._file = file

    def __setitem__(self, place: Any, frame: np.ndarray) -> None:
        self._file._write(np.array([self._file._first_end + int(place)]), frame)


def _runs(positions: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield stretches in which each position follows the one before: where it begins here, its first position, its length."""
    if not len(positions):
        return
    first = np.concatenate([[0], np.flatnonzero(np.diff(positions) != 1) + 1])
    count = np.diff(np.append(first, len(positions)))
    yield from zip(first.tolist(), positions[first].tolist(), count.tolist(), strict=True)

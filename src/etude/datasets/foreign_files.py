"""Other people's files of arrays, HDF5 and npz, read within limits: no pickle, no link, no more than is allowed."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from etude.datasets.arrays import known_names
from etude.errors import MissingPackageError, UserError
from etude.files.atomic import replacing
from etude.files.printable import one_line
from etude.files.regular import open_descriptor

MOST_BYTES = 64 * 2**30
"""Of all arrays of a file together, unpacked."""
_MOST_MEMBERS = 10_000
_DEEPEST = 4


def read_npz(path: Path, most: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that are known here; anything pickled is refused."""
    with _opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                if len(archive.infolist()) > _MOST_MEMBERS:
                    raise UserError(f"{path}: has {len(archive.infolist()):,} members")
                wanted = [info for info in archive.infolist() if _is_known(info.filename.removesuffix(".npy"))]
                _allow(path, sum(info.file_size for info in wanted), most)
                return {info.filename.removesuffix(".npy"): _array(path, archive, info) for info in wanted}
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise UserError(f"{path}: not readable as npz ({one_line(str(error))})") from None


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        try:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(member, max_header_size=10_000)
            _check_type(path, info.filename, dtype)
            size = math.prod(shape) * dtype.itemsize
            # The member's own size bounds what its header may claim.
            if size > info.file_size:
                raise ValueError(f"its header claims {size:,} bytes of {info.file_size:,}")
            flat = np.frombuffer(bytearray(member.read(size)), dtype)
            return flat.reshape(shape, order="F" if fortran else "C")
        except (ValueError, TypeError, SyntaxError, OverflowError) as error:
            raise UserError(f"{path}: '{info.filename}' is no array of numbers ({one_line(str(error), 120)})") from None


def read_hdf5(path: Path, most: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an HDF5 file that are known here, `observations/KEY` where a group has parts."""
    h5py = _h5py()
    with _opened(path) as file:
        try:
            with h5py.File(file, "r") as data:
                found = {name: each for name, each in _own_datasets(path, data) if _is_known(name)}
                _allow(path, sum(each.size * each.dtype.itemsize for each in found.values()), most)
                return {name: each[()] for name, each in found.items()}
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise UserError(f"{path}: not readable as HDF5 ({one_line(str(error), 120)})") from None


def check_hdf5(path: Path, most: int = MOST_BYTES) -> None:
    """Raise UserError if an HDF5 file leads to other files, or unpacks to more than is allowed."""
    h5py = _h5py()
    with _opened(path) as file:
        try:
            with h5py.File(file, "r") as data:
                sizes = (each.size * each.dtype.itemsize for _, each in _own_datasets(path, data, deepest=16))
                _allow(path, sum(sizes), most)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise UserError(f"{path}: not readable as HDF5 ({one_line(str(error), 120)})") from None


def _own_datasets(path: Path, group: Any, prefix: str = "", deepest: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """Yield the arrays that lie in the file itself; what leads elsewhere is refused."""
    h5py = _h5py()
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise UserError(f"{path}: '{prefix}{one_line(name, 60)}' is a link, which is never followed here")
        item = group[name]
        if isinstance(item, h5py.Group):
            if deepest:  # groups can contain themselves
                yield from _own_datasets(path, item, f"{prefix}{name}/", deepest - 1)
            continue
        if not isinstance(item, h5py.Dataset):
            continue
        if item.is_virtual or item.external:
            raise UserError(f"{path}: '{prefix}{one_line(name, 60)}' lies in another file, which is never followed here")
        if _is_known(prefix + name):
            _check_type(path, prefix + name, item.dtype)
        yield prefix + name, item


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a new npz file."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type] # its own parameter is not among the names
        file.flush()
        os.fsync(file.fileno())


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a new HDF5 file."""
    h5py = _h5py()
    with replacing(path) as temporary, open(temporary, "x+b") as file:
        with h5py.File(file, "w") as data:
            for name, array in arrays.items():
                data.create_dataset(name, data=array, compression="gzip")
        file.flush()
        os.fsync(file.fileno())


def _h5py() -> Any:
    try:
        import h5py
    except ModuleNotFoundError:
        raise MissingPackageError("HDF5 files need h5py; install it with: pip install 'etude[datasets]'") from None
    return h5py


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file that the user named, wherever links to it lead."""
    try:
        descriptor = open_descriptor(Path(os.path.realpath(path)), os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    with open(descriptor, "rb") as file:
        yield file


def _is_known(name: str) -> bool:
    return name.partition("/")[0] in known_names()


def _check_type(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf" or dtype.hasobject:
        raise UserError(f"{path}: '{one_line(name, 60)}' is of {dtype}, and only numbers are read")


def _allow(path: Path, size: int, most: int) -> None:
    if size > most:
        raise UserError(f"{path}: unpacks to {size:,} bytes, more than the {most:,} allowed")

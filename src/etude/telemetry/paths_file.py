"""Played episodes as arrays in one .npz file, each written as it ends."""

from __future__ import annotations

import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from etude.errors import UserError

VERSION = 1


class PathsFile:
    """Writes episodes to an .npz: `000/observations`, `000/actions` ...; a dict's arrays are `000/observations/NAME`.

    Only the episode at hand is in memory, and the file appears when it is complete. It holds no pickle.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.suffix != ".npz":
            raise UserError(f"--paths {self.path}: the name must end in .npz")
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")
        self._episodes = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._zip = zipfile.ZipFile(self._temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        except OSError as error:
            raise UserError(f"--paths {self.path}: {error.strerror or error}") from None

    def __enter__(self) -> PathsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._write("version", np.array(VERSION))
                self._write("episodes", np.array(self._episodes))
            self._zip.close()
            if kind is None:
                with self._temporary.open("rb") as file:
                    os.fsync(file.fileno())
                self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def add(self, path: Mapping[str, Any]) -> None:
        """Append an episode: a dict of arrays, numbers and dicts of arrays."""
        for name, array in _flat(path, f"{self._episodes:03d}/"):
            self._write(name, array)
        self._episodes += 1

    def _write(self, name: str, array: np.ndarray) -> None:
        with self._zip.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


def read_paths(path: Path | str) -> list[dict[str, Any]]:
    """Return the episodes of a file, as they were added."""
    with np.load(path, allow_pickle=False) as stored:
        episodes: list[dict[str, Any]] = [{} for _ in range(int(stored["episodes"]))]
        for name in stored.files:
            number, *keys = name.split("/")
            if keys:
                place = episodes[int(number)]
                for key in keys[:-1]:
                    place = place.setdefault(key, {})
                array = stored[name]
                place[keys[-1]] = array if array.ndim else array.item()
    return episodes


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", np.asarray(value)

"""A dataset that is there: its episodes one by one, or all of its columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from etude.datasets.episode import ACTION, LENGTH, OBSERVATION, OF_EPISODES, REWARD, SEED, TERMINATED, Episode, Shapes, whole
from etude.datasets.manifest import DatasetError, Manifest, SegmentRecord, read_manifest
from etude.datasets.places import SEGMENTS, default_root, existing
from etude.datasets.segment_file import SegmentFile
from etude.files.regular import own_folder


class Dataset:
    """Whole episodes in a folder; every file is held to the manifest before its rows are used."""

    def __init__(self, folder: Path, manifest: Manifest | None = None) -> None:
        self.folder = folder
        self.manifest = manifest or read_manifest(folder)
        self.observation_space, self.action_space = self.manifest.spaces
        self._shapes = Shapes(self.observation_space, self.action_space)
        step = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self._shapes.columns.values())
        for segment in self.manifest.segments:  # before anybody takes memory for what it claims
            if segment.steps * step > segment.size:
                raise DatasetError(f"{folder}: {segment.file} has no room for the {segment.steps:,} steps that are said of it")

    @classmethod
    def open(cls, name: str, root: Path | str | None = None) -> Dataset:
        """Open a dataset by its name below a root, by default $ETUDE_DATASETS or ./datasets."""
        return cls(existing(name, default_root() if root is None else Path(root)))

    def __len__(self) -> int:
        return self.manifest.episodes

    def episodes(self, *, last_segment_only: bool = False) -> Iterator[Episode]:
        """Yield every episode, in order; a segment is in memory at a time."""
        for segment in self.manifest.segments[-1:] if last_segment_only else self.manifest.segments:
            with self.open_segment(segment) as file:
                columns = {name: file.read(name) for name in file.columns}
            first_seen = first = 0
            for index, length in enumerate(columns[LENGTH].tolist()):
                seen = {
                    name: column[first_seen : first_seen + length + 1]
                    for name, column in columns.items()
                    if name.startswith(OBSERVATION)
                }
                yield Episode(
                    whole(seen),
                    columns[ACTION][first : first + length],
                    columns[REWARD][first : first + length],
                    bool(columns[TERMINATED][index]),
                    int(columns[SEED][index]),
                )
                first, first_seen = first + length, first_seen + length + 1

    def open_segment(self, segment: SegmentRecord) -> SegmentFile:
        """Open one file, after it was held to what the manifest and the spaces say."""
        file = SegmentFile(own_folder(self.folder / SEGMENTS) / segment.file)
        try:
            file.check(segment.sha256, segment.size)
            self._check(file, segment)
        except BaseException:
            file.close()
            raise
        return file

    def _check(self, file: SegmentFile, segment: SegmentRecord) -> None:
        where = self.folder / SEGMENTS / segment.file
        places = file.columns
        told = self._shapes.problem({name: (place.shape[1:], place.dtype) for name, place in places.items()})
        if told is not None:
            raise DatasetError(f"{where}: {told}")
        kinds = {LENGTH: torch.int64, TERMINATED: torch.bool, SEED: torch.int64}
        for name, dtype in kinds.items():
            if name not in places or places[name].dtype is not dtype or places[name].shape != (segment.episodes,):
                raise DatasetError(f"{where}: has no {name} of each of its {segment.episodes} episodes")
        lengths = file.read(LENGTH)
        if (lengths < 1).any() or (lengths > segment.steps).any() or int(lengths.sum()) != segment.steps:
            raise DatasetError(f"{where}: its episodes have other lengths than {segment.steps} steps in all")
        for name, place in places.items():
            rows = segment.steps + (segment.episodes if name.startswith(OBSERVATION) else 0)
            if name not in OF_EPISODES and place.shape[0] != rows:
                raise DatasetError(f"{where}: column {name} has {place.shape[0]} rows, not {rows}")

    @property
    def memory(self) -> int:
        """The bytes that `load` takes, known before anything is read."""
        rows = {name: self.manifest.steps + (len(self) if name.startswith(OBSERVATION) else 0) for name in self._shapes.columns}
        sizes = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in self._shapes.columns.items()}
        return sum(count * sizes[name] for name, count in rows.items())

    def load(self) -> dict[str, Tensor]:
        """Return all columns, episodes one after the other: `observation` has a row more for each episode."""
        manifest = self.manifest
        if not manifest.segments:
            raise DatasetError(f"{self.folder}: has no episode yet")
        columns: dict[str, Tensor] = {}
        for name, (shape, dtype) in self._shapes.columns.items():
            rows = manifest.steps + (manifest.episodes if name.startswith(OBSERVATION) else 0)
            columns[name] = torch.empty((rows, *shape), dtype=dtype)
        for name, dtype in ((LENGTH, torch.int64), (TERMINATED, torch.bool), (SEED, torch.int64)):
            columns[name] = torch.empty(manifest.episodes, dtype=dtype)
        steps = [0, *accumulate(segment.steps for segment in manifest.segments)]
        episodes = [0, *accumulate(segment.episodes for segment in manifest.segments)]
        for index, segment in enumerate(manifest.segments):
            with self.open_segment(segment) as file:
                for name, column in columns.items():
                    first = episodes[index] if name in OF_EPISODES else steps[index]
                    first += episodes[index] if name.startswith(OBSERVATION) else 0
                    count = file.columns[name].shape[0]
                    column[first : first + count] = file.read(name)
        return columns

"""Writes a dataset an episode at a time. What `add` has returned of is on the disk, whatever happens next.

Finished episodes go into the newest segment, which is written anew until it is large enough; then the next one begins. The old
file goes when the manifest no longer names it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from etude.datasets.dataset import Dataset
from etude.datasets.episode import Episode, Shapes, columns_of
from etude.datasets.manifest import Manifest, SegmentRecord, read_manifest, write_manifest
from etude.datasets.places import LOCK, MANIFEST, SEGMENTS
from etude.errors import UserError
from etude.files.atomic import LEFTOVER_SUFFIX, fsync_directory, remove_leftovers
from etude.files.regular import own_folder
from etude.runs.lock import exclusive_lock
from etude.runs.tensor_file import write_tensors

SEGMENT_BYTES = 4 * 2**20
"""From this size on a segment is complete."""


class DatasetWriter:
    """Adds episodes to one dataset; made by `writing`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._shapes = Shapes(*manifest.spaces)
        self._open: list[Episode] = []
        """The episodes of the newest segment, while it is still written anew."""
        if manifest.segments and manifest.segments[-1].size < SEGMENT_BYTES:
            self._open = list(Dataset(folder, manifest).episodes(last_segment_only=True))

    def add(self, *episodes: Episode) -> None:
        """Store whole episodes; they are on the disk when this returns."""
        if not episodes:
            return
        for episode in episodes:
            self._shapes.check(episode)
        kept = self.manifest.segments[:-1] if self._open else self.manifest.segments
        self._open += episodes
        segment = self._write(sum(record.episodes for record in kept), self._open)
        before, self.manifest = self.manifest.segments, replace(self.manifest, segments=(*kept, segment))
        write_manifest(self.folder, self.manifest)
        for record in before[len(kept) :]:
            if record.file != segment.file:
                with contextlib.suppress(OSError):
                    os.unlink(self.folder / SEGMENTS / record.file)
        if segment.size >= SEGMENT_BYTES:
            self._open = []

    def _write(self, first: int, episodes: list[Episode]) -> SegmentRecord:
        folder = self.folder / SEGMENTS
        temporary = folder / f".{first}.{secrets.token_hex(6)}{LEFTOVER_SUFFIX}"
        try:
            sha256, size = write_tensors(temporary, columns_of(episodes))
            name = f"{first:012d}-{sha256[:16]}.safetensors"
            os.replace(temporary, folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(folder)
        totals = tuple(episode.total for episode in episodes)
        return SegmentRecord(name, sha256, size, len(episodes), sum(map(len, episodes)), totals)


@contextlib.contextmanager
def writing(folder: Path, manifest: Manifest) -> Iterator[DatasetWriter]:
    """Begin a dataset, or go on with one that says the same of itself; nobody else may write it meanwhile."""
    own_folder(folder)
    segments = own_folder(folder / SEGMENTS)
    with exclusive_lock(folder / LOCK, f"dataset {folder.name}"):
        if (folder / MANIFEST).exists():
            found = read_manifest(folder)
            _check_same(folder, found, manifest)
            manifest = found
        else:
            write_manifest(folder, manifest)
        remove_leftovers(folder, MANIFEST)
        _remove_unused(segments, {record.file for record in manifest.segments})
        yield DatasetWriter(folder, manifest)


def _check_same(folder: Path, found: Manifest, wanted: Manifest) -> None:
    """Raise UserError where episodes of another kind would be added."""
    for what in ("observation_space", "action_space", "environment"):
        if getattr(found, what) != getattr(wanted, what):
            raise UserError(f"dataset {folder} has another {what}; choose another --name")
    ours, theirs = (replace(each.origin, created="", etude="") for each in (found, wanted))
    if ours != theirs:
        differs = next(name for name in vars(ours) if getattr(ours, name) != getattr(theirs, name))
        said = [getattr(each, differs) for each in (ours, theirs)]
        raise UserError(f"dataset {folder} was recorded with {differs}={said[0]}, not {said[1]}; choose another --name")


def _remove_unused(segments: Path, used: set[str]) -> None:
    """Remove what a killed writer left: files that the manifest does not name."""
    with os.scandir(segments) as entries:
        for entry in entries:
            if entry.name not in used and entry.is_file(follow_symlinks=False) and _is_ours(entry.name):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _is_ours(name: str) -> bool:
    return name.endswith((".safetensors", LEFTOVER_SUFFIX))

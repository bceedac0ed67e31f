"""One checkpoint on disk: a folder with a manifest and, for each part, a JSON state and a tensor file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch

from etude.errors import CheckpointError, EtudeError
from etude.files.printable import one_line
from etude.files.segments import Segment, StoredSegment
from etude.files.state_tree import Fetch, decode
from etude.runs.checkpoint_history import Spans, abandoned_spans
from etude.runs.manifest import MANIFEST_NAME, FileRecord, check_file, damaged, inside, read_json, read_manifest
from etude.runs.part_files import STATE_NAME, TENSORS_NAME
from etude.runs.tensor_file import TensorFile

MISFITS = (KeyError, ValueError, TypeError, AttributeError, IndexError, AssertionError, RuntimeError, RecursionError)


@contextmanager
def fitting(checkpoint: Checkpoint, what: str) -> Iterator[None]:
    """Within, a state that is not of the form it is loaded into is one line about the checkpoint, whatever that raised.

    The hashes only say that a state is what somebody saved; a stranger may have saved anything.
    """
    try:
        yield
    except (EtudeError, torch.OutOfMemoryError):
        raise
    except MISFITS as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise CheckpointError(f"checkpoint {checkpoint.name} does not fit {what}: {one_line(reason)}") from error


@dataclass(frozen=True)
class Checkpoint:
    """A saved state that can be checked and loaded; `kind` is ``full``, ``policy`` or ``damaged``."""

    path: Path
    name: str
    sequence: int
    kind: str
    counters: Mapping[str, int]
    metadata: Mapping[str, object]
    created: str
    is_best: bool
    files: Mapping[str, FileRecord] = field(repr=False, default_factory=dict)
    # Files of rows beside this checkpoint, which it shares with others.
    segments: Mapping[str, FileRecord] = field(repr=False, default_factory=dict)
    # Why the manifest could not be read, when kind is "damaged".
    damage: str | None = None

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read the manifest of the checkpoint at `path`; CheckpointError when it can't be used."""
        if not path.is_dir():
            raise CheckpointError(f"{path}: no such checkpoint")
        manifest = read_manifest(path)

        def no_tensors(part: str, name: str) -> torch.Tensor:
            raise ValueError("metadata holds no tensors")

        try:
            metadata = cast("dict[str, object]", decode(manifest.metadata, no_tensors))
        except (ValueError, RecursionError) as error:
            raise damaged(path, MANIFEST_NAME, f"metadata: {error}") from error
        return cls(
            path=path,
            name=path.name,
            sequence=manifest.sequence,
            kind=manifest.kind,
            counters=manifest.counters,
            metadata=metadata,
            created=manifest.created,
            is_best=manifest.is_best,
            files=manifest.files,
            segments=manifest.segments,
        )

    @property
    def abandoned(self) -> Spans:
        """The sequences before it that are no part of its history."""
        return abandoned_spans(self.metadata)

    @property
    def parts(self) -> list[str]:
        """The names of the parts that can be loaded."""
        return [path.removesuffix(f"/{STATE_NAME}") for path in self.files if path.endswith(f"/{STATE_NAME}")]

    def verify(self) -> None:
        """Check the size and hash of every file, and that there are no others; CheckpointError names the first."""
        self._require_readable()
        for path, record in self.files.items():
            check_file(self.path, path, record)
        for path in self.segments:
            self._check_segment(path)
        for folder, folders, files in os.walk(self.path):
            for name in files + [name for name in folders if os.path.islink(os.path.join(folder, name))]:
                relative = os.path.relpath(os.path.join(folder, name), self.path)
                if relative not in self.files and relative != MANIFEST_NAME:
                    raise damaged(self.path, relative, "not in the manifest")
        inside(self.path, MANIFEST_NAME)

    def load(self, parts: Iterable[str] | None = None, device: str | torch.device = "cpu") -> dict[str, object]:
        """Return the state of each part asked for (all by default), after checking the hashes of the files read."""
        self._require_readable()
        wanted = self.parts if parts is None else list(parts)
        for part in wanted:
            if part not in self.parts:
                raise CheckpointError(f"checkpoint {self.name} has no part '{part}'; it has {', '.join(self.parts)}")
        tensor_files: dict[str, TensorFile] = {}

        def fetch(part: str, name: str) -> torch.Tensor:
            if part not in tensor_files:
                tensor_files[part] = self._open_tensors(part, device)
            try:
                return tensor_files[part][name]
            except KeyError as error:
                raise damaged(self.path, f"{part}/{TENSORS_NAME}", f"has no tensor '{name[:120]}'") from error
            except ValueError as error:
                raise damaged(self.path, f"{part}/{TENSORS_NAME}", str(error)) from error

        states = {part: self._read_state(part) for part in wanted}
        for part in wanted:
            tensor_files[part] = self._open_tensors(part, device)
        return {part: self._decode(part, state, fetch) for part, state in states.items()}

    def _decode(self, part: str, state: object, fetch: Fetch) -> object:
        try:
            return decode(state, fetch, self._refer)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path, f"{part}/{STATE_NAME}", str(error)) from error

    def _read_state(self, part: str) -> object:
        self._check(f"{part}/{STATE_NAME}")
        return read_json(self.path, f"{part}/{STATE_NAME}")

    def _open_tensors(self, part: str, device: str | torch.device) -> TensorFile:
        relative = f"{part}/{TENSORS_NAME}"
        path = self._check(relative)
        try:
            return TensorFile(path, device)
        except (ValueError, OSError) as error:
            raise damaged(self.path, relative, str(error)) from error

    def _refer(self, path: str, owner: str, first: int, count: int) -> Segment:
        """Return a segment that reads its file when asked to: all of them at once may not fit into memory."""
        if path not in self.segments:
            raise damaged(self.path, path[:120], "not in the manifest")
        record = self.segments[path]

        def load() -> dict[str, torch.Tensor]:
            try:
                return TensorFile(self._check_segment(path), "cpu").all()
            except (ValueError, OSError) as error:
                raise damaged(self.path, path, str(error)) from error

        return Segment(owner, first, count, load, stored=StoredSegment(path, record.sha256, record.size))

    def _check_segment(self, path: str) -> Path:
        return check_file(self.path, path, self.segments[path], root=self.path.parent)

    def _check(self, relative: str) -> Path:
        if relative not in self.files:
            raise damaged(self.path, relative[:120], "not in the manifest")
        return check_file(self.path, relative, self.files[relative])

    def _require_readable(self) -> None:
        if self.damage is not None:
            raise CheckpointError(self.damage)

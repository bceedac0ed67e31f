"""What a dataset says of itself: `dataset.json`, the only list of its segments.

A segment counts once the manifest names it, with size and hash. The manifest is replaced in one step, so a dataset is always
the episodes that were finished when it was last written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium

from etude.config.constraints import NonNegativeInt, PositiveInt
from etude.config.validate import Validator, to_plain
from etude.datasets.places import MANIFEST, SEGMENTS
from etude.environments.space_data import from_data
from etude.errors import EtudeError, UserError
from etude.files.atomic import write_text_atomic
from etude.files.documents import DocumentError, read_json

FORMAT = 1
LARGEST = 64 * 2**20
"""Bytes of the largest manifest that is read."""
_SEGMENT = re.compile(r"\d{12}-[0-9a-f]{16}\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class DatasetError(EtudeError):
    """A dataset is damaged, foreign or too new."""


@dataclass(frozen=True)
class SegmentRecord:
    """One file of whole episodes."""

    file: str
    """Its name in the folder of segments: its first episode, and the start of its hash."""
    sha256: str
    size: PositiveInt
    episodes: PositiveInt
    steps: PositiveInt
    returns: tuple[float, ...]
    """What each of its episodes earned."""


@dataclass(frozen=True)
class Origin:
    """Where the episodes came from."""

    kind: Literal["run", "minari", "hdf5", "npz", "script", "own"] = "own"
    """A run's policy, a dataset of another format, or whoever wrote them."""
    source: str = ""
    """The run's id, or the file or dataset that was converted."""
    checkpoint: str | None = None
    """Which checkpoint of the run acted."""
    env_steps: NonNegativeInt | None = None
    """After how many environment steps of training it was saved."""
    algorithm: str | None = None
    """What trained it."""
    mode: str | None = None
    """How it acted: greedy or sample."""
    seed: int | None = None
    """The root of the seeds of its episodes."""
    num_envs: PositiveInt | None = None
    """How many copies of the environment were stepped together."""
    etude: str = ""
    """The version of Etude that wrote the dataset."""
    created: str = ""
    """When it was begun, in UTC."""
    sha256: str | None = None
    """The hash of the file that was converted, or of the run's policy."""


@dataclass(frozen=True)
class Manifest:
    """A dataset, but for its rows."""

    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    origin: Origin = Origin()
    environment: dict[str, Any] = field(default_factory=dict)
    """The task, as the section `environment` of a config."""
    description: str = ""
    segments: tuple[SegmentRecord, ...] = ()
    format: PositiveInt = FORMAT

    @property
    def episodes(self) -> int:
        """How many whole episodes there are."""
        return sum(segment.episodes for segment in self.segments)

    @property
    def steps(self) -> int:
        """How many transitions there are."""
        return sum(segment.steps for segment in self.segments)

    @property
    def returns(self) -> list[float]:
        """What each episode earned, in order."""
        return [value for segment in self.segments for value in segment.returns]

    @property
    def nbytes(self) -> int:
        """What the segments take on the disk."""
        return sum(segment.size for segment in self.segments)

    @property
    def task(self) -> str:
        """The id of the environment, if anybody said."""
        return str(self.environment.get("id", ""))

    @property
    def spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
        """The spaces of observations and actions."""
        return from_data(self.observation_space), from_data(self.action_space)


def read_manifest(folder: Path) -> Manifest:
    """Return what a dataset says of itself; DatasetError with one line where that can't be."""
    path = folder / MANIFEST
    try:
        data = read_json(path, LARGEST)
    except DocumentError as error:
        raise DatasetError(error.of(path)) from None
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    if not isinstance(data, dict):
        raise DatasetError(f"{path}: must be a mapping, as `etude dataset` writes it")
    if isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise DatasetError(f"{path}: format {data['format']} is of a newer Etude; this one reads up to {FORMAT}")
    try:
        manifest = Validator(allow_imports=False).build(Manifest, data, "")
        _ = manifest.spaces
    except UserError as error:
        raise DatasetError(f"{path}: {error}") from None
    for number, segment in enumerate(manifest.segments):
        _check(path, f"segments[{number}]", segment)
    return manifest


def _check(path: Path, where: str, segment: SegmentRecord) -> None:
    if not _SEGMENT.fullmatch(segment.file) or not _SHA256.fullmatch(segment.sha256):
        raise DatasetError(f"{path}: {where}: a segment is a file in {SEGMENTS}/, with its SHA-256, not {segment.file[:60]!r}")
    if len(segment.returns) != segment.episodes:
        raise DatasetError(f"{path}: {where}: has {len(segment.returns)} returns of {segment.episodes} episodes")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace what a dataset says of itself, on the disk before this returns."""
    write_text_atomic(folder / MANIFEST, as_text(manifest))


def as_text(manifest: Manifest) -> str:
    """Return a manifest as JSON, a segment a line."""
    import json

    plain = to_plain(manifest)
    segments = plain.pop("segments")
    head = json.dumps(plain, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(segment) for segment in segments)
    return f'{head},\n "segments": [\n  {lines}\n ]\n}}\n'


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, standard deviation, least and greatest of some numbers."""
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    var = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return {"mean": mean, "std": math.sqrt(var), "min": min(values), "max": max(values)}

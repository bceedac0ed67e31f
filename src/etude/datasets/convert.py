"""Datasets from other formats to ours, and ours to theirs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gymnasium

from etude import __version__
from etude.datasets import foreign_files, scripted
from etude.datasets.arrays import FlatArrays, flattened
from etude.datasets.dataset import Dataset
from etude.datasets.episode import Episode
from etude.datasets.manifest import Manifest, Origin
from etude.datasets.minari_store import PREFIX, MinariSource, write_minari
from etude.datasets.places import MANIFEST, folder_of
from etude.datasets.writer import SEGMENT_BYTES, writing
from etude.environments.space_data import to_data
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.files.printable import one_line
from etude.files.regular import open_descriptor

HDF5, NPZ = (".hdf5", ".h5"), (".npz",)


def is_foreign(word: str) -> bool:
    """Whether a word names a file or dataset of another format."""
    return word.startswith((PREFIX, scripted.PREFIX)) or word.lower().endswith((*HDF5, *NPZ))


def read_foreign(
    source: str,
    name: str,
    root: Path,
    *,
    environment: tuple[str, Callable[[], VectorEnvironment]] | None = None,
    scripted_episodes: int = 200,
) -> tuple[Dataset, list[str]]:
    """Write what another format has as a new dataset of ours; returns it, and what is worth knowing.

    `environment` is the task's id, and what makes it: its spaces then hold. Without one, spaces are those of the source.
    """
    folder = folder_of(name, root)
    if (folder / MANIFEST).exists():
        raise UserError(f"dataset '{name}' is there already; choose another name, or remove {folder}")
    notes: list[str] = []
    spaces = None if environment is None else _spaces_of(environment[1])
    if source.startswith(scripted.PREFIX):
        task = source.removeprefix(scripted.PREFIX)
        rules = scripted.demonstrated(task)
        spaces, origin = (rules.observation_space, rules.action_space), Origin(kind="script", source=task, seed=0)
        episodes: Iterator[Episode] = scripted.demonstrations(rules, scripted_episodes)
    elif source.startswith(PREFIX):
        found = MinariSource(source.removeprefix(PREFIX))
        theirs = (found.observation_space, found.action_space)
        if spaces is not None and spaces != theirs:
            raise UserError(f"{source}: has other spaces than {environment and environment[0]}: {one_line(str(theirs))}")
        task, origin = found.task, Origin(kind="minari", source=source.removeprefix(PREFIX))
        episodes = found.episodes()
        spaces = theirs
    else:
        path = Path(source)
        kind = "npz" if path.suffix.lower() in NPZ else "hdf5"
        arrays = FlatArrays.of((foreign_files.read_npz if kind == "npz" else foreign_files.read_hdf5)(path), source)
        if spaces is None:
            spaces = arrays.guessed_spaces()
            notes.append(f"the spaces were guessed from the arrays: {one_line(str(spaces[1]))}; --env says them")
        task, origin = "", Origin(kind=kind, source=path.name, sha256=_hash(path))
        episodes = _told(arrays, spaces, notes)
    manifest = Manifest(
        to_data(spaces[0]),
        to_data(spaces[1]),
        _dated(origin),
        {"id": environment[0] if environment else task} if environment or task else {},
    )
    with writing(folder, manifest) as writer:
        for batch in _in_batches(episodes):
            writer.add(*batch)
    return Dataset(folder), notes


def write_foreign(dataset: Dataset, target: str) -> None:
    """Write a dataset of ours in another format."""
    if target.startswith(scripted.PREFIX):
        raise UserError(f"{target}: a script is not written to; name a file, or minari:ID")
    if target.startswith(PREFIX):
        write_minari(dataset, target.removeprefix(PREFIX))
        return
    path = Path(target)
    arrays = flattened(dataset.episodes())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (foreign_files.write_npz if path.suffix.lower() in NPZ else foreign_files.write_hdf5)(path, arrays)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _told(arrays: FlatArrays, spaces: Any, notes: list[str]) -> Iterator[Episode]:
    lost = 0
    for episode, lost_one in arrays.episodes(*spaces):
        lost += lost_one
        yield episode
    if lost:
        notes.append(f"{lost} episodes lost their last step: without next_observations nothing says where it led")


def _in_batches(episodes: Iterator[Episode]) -> Iterator[Sequence[Episode]]:
    """Yield episodes a segment at a time: what is converted can be converted again."""
    batch: list[Episode] = []
    held = 0
    for episode in episodes:
        batch.append(episode)
        held += sum(tensor.nbytes for tensor in _tensors(episode))
        if held >= SEGMENT_BYTES:
            yield batch
            batch, held = [], 0
    yield batch


def _tensors(episode: Episode) -> list[Any]:
    seen = episode.observation
    return [*(seen.values() if isinstance(seen, dict) else [seen]), episode.action, episode.reward]


def _spaces_of(make: Callable[[], VectorEnvironment]) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    environment = make()
    try:
        return environment.single_observation_space, environment.single_action_space
    finally:
        environment.close()


def _dated(origin: Origin) -> Origin:
    return replace(origin, etude=__version__, created=datetime.now(UTC).isoformat(timespec="seconds"))


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(open_descriptor(Path(os.path.realpath(path)), os.O_RDONLY), "rb") as file:
        while chunk := file.read(2**22):
            digest.update(chunk)
    return digest.hexdigest()

"""Checkpoints that are no longer what was saved: which file, and where a re-run can tell, which tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from etude.errors import CheckpointError
from etude.runs.checkpoint import CheckpointStore
from etude.runs.manifest import MANIFEST_NAME, check_file
from etude.runs.part_files import TENSORS_NAME
from etude.runs.saved_checkpoint import Checkpoint
from etude.runs.tensor_file import TensorFile
from etude.verification.differences import same_bits


@dataclass(frozen=True)
class Damage:
    """A file of a checkpoint that is not the one that was saved."""

    checkpoint: str
    file: str
    problem: str
    tensors: tuple[str, ...] = ()
    """Those that differ from what a re-run saved there."""

    def __str__(self) -> str:
        named = f" ({', '.join(self.tensors[:3])}{' ...' if len(self.tensors) > 3 else ''})" if self.tensors else ""
        return f"checkpoint {self.checkpoint} is damaged: {self.file}{named}: {self.problem}"


def find_damage(store: CheckpointStore) -> list[Damage]:
    """Check the size and hash of every file of every checkpoint."""
    found = []
    for checkpoint in store.list():
        if checkpoint.damage is not None:
            found.append(Damage(checkpoint.name, MANIFEST_NAME, _reason(checkpoint.damage)))
            continue
        places = [(checkpoint.path, checkpoint.files), (checkpoint.path.parent, checkpoint.segments)]
        for root, file, record in [(root, *item) for root, files in places for item in files.items()]:
            try:
                check_file(checkpoint.path, file, record, root=root)
            except CheckpointError as error:
                found.append(Damage(checkpoint.name, file, _reason(str(error))))
        if not any(damage.checkpoint == checkpoint.name for damage in found):
            try:
                checkpoint.verify()
            except CheckpointError as error:
                found.append(Damage(checkpoint.name, "its folder", _reason(str(error))))
    return found


def can_name_tensors(damage: Damage, compared: Checkpoint | None) -> bool:
    """Whether a re-run can tell which tensor was damaged: it saves the same tensors at the same place."""
    in_tensors = damage.file.endswith(TENSORS_NAME) and damage.problem == "hash differs"
    return compared is not None and damage.checkpoint == compared.name and in_tensors


def name_tensors(damage: Damage, stored: Path, again: Path) -> Damage:
    """Return the damage with the tensors that are not those of the re-run's checkpoint, where that can be read."""
    try:
        if (again / damage.file).read_bytes()[:8] != (stored / damage.file).read_bytes()[:8]:
            return damage  # the header itself
        left, right = TensorFile(stored / damage.file, "cpu"), TensorFile(again / damage.file, "cpu")
        with safe_open(again / damage.file, framework="pt") as file:
            names = [name for name in file.keys() if not same_bits(left[name], right[name])]  # noqa: SIM118 - not a dict
    except (OSError, ValueError, KeyError):
        return damage
    return Damage(damage.checkpoint, damage.file, damage.problem, tuple(names))


def _reason(text: str) -> str:
    """The reason at the end of a checkpoint's error."""
    return text.rpartition(": ")[2]

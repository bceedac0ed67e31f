"""Which of a run's checkpoints a word names, by their manifests alone: without torch, so that looking is quick."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from etude.errors import CheckpointError, UserError, did_you_mean
from etude.files.atomic import read_link
from etude.runs.checkpoint_history import Saved, Spans, abandoned_spans, best_until
from etude.runs.manifest import read_manifest

_NAME = re.compile(r"(\d{6,})-\d+-\d+")
_MOST_SHOWN = 8


class Named(Saved, Protocol):
    """What choosing a checkpoint goes by."""

    @property
    def kind(self) -> str:
        """``full``, ``policy`` or ``damaged``."""
        ...

    @property
    def damage(self) -> str | None:
        """Why it can't be read, when it is damaged."""
        ...


AnyCheckpoint = TypeVar("AnyCheckpoint", bound=Named)


@dataclass(frozen=True)
class CheckpointOutline:
    """A checkpoint as a listing shows it; `kind` is ``full``, ``policy`` or ``damaged``."""

    path: Path
    name: str
    sequence: int
    kind: str
    counters: Mapping[str, int]
    created: str
    is_best: bool
    is_last: bool
    size: int
    """Bytes of its files, as its manifest says."""
    abandoned: Spans = ()
    """The sequences before it that are no part of its history."""
    damage: str | None = None
    """Why its manifest can't be read, when `kind` is ``damaged``."""


def checkpoint_folders(directory: Path) -> list[Path]:
    """Return the checkpoints in a folder, in no order; none when it isn't there.

    A link or a file with the name of one is among them: reading it says that it is damaged, and its number is taken.
    """
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{directory}: {error.strerror or error}") from error
    return [path for path in entries if _NAME.fullmatch(path.name)]


def sequence_of(folder: Path) -> int:
    """Return the number that a checkpoint's name begins with."""
    return int(folder.name.split("-")[0])


def outline_checkpoints(directory: Path) -> list[CheckpointOutline]:
    """Return what the manifests in a folder of checkpoints say, oldest first."""
    found = [_outline(path) for path in sorted(checkpoint_folders(directory), key=sequence_of)]
    # As a resume chooses: the link is for people, and may be anything.
    best, last = best_name(directory, found), next((each.name for each in reversed(found) if each.kind != "policy"), None)
    return [replace(each, is_best=each.name == best, is_last=each.name == last) for each in found]


def _outline(path: Path) -> CheckpointOutline:
    try:
        manifest = read_manifest(path)
    except CheckpointError as error:
        return CheckpointOutline(path, path.name, sequence_of(path), "damaged", {}, "", False, False, 0, damage=str(error))
    size = sum(record.size for record in manifest.files.values())
    known = (manifest.kind, manifest.counters, manifest.created, manifest.is_best)
    spans = abandoned_spans(manifest.metadata)
    return CheckpointOutline(path, path.name, sequence_of(path), *known, is_last=False, size=size, abandoned=spans)


def best_name(directory: Path, found: Sequence[Named]) -> str | None:
    """Return the best checkpoint's name: the link decides, and the manifests where there is none."""
    linked = read_link(directory / "best")
    if any(checkpoint.name == linked for checkpoint in found):
        return linked
    return best_until(max(found, key=lambda checkpoint: checkpoint.sequence), found) if found else None


def choose_checkpoint(
    selector: str, found: Sequence[AnyCheckpoint], directory: Path, why_empty: str | None = None
) -> AnyCheckpoint:
    """Return the checkpoint that ``last``, ``best``, a sequence, env_steps or a name means; UserError when there is none.

    One that can't be read is an error that names it: an older one in its place would pass for what was asked.
    """
    if selector in ("last", "latest"):
        # Of a run in small, such as a published one, there is the policy alone.
        matches = [checkpoint for checkpoint in found if checkpoint.kind != "policy"] or list(found)
    elif selector == "best":
        matches = [checkpoint for checkpoint in found if checkpoint.is_best]
    else:
        matches = _matching(selector, found)
    if matches:
        # Two saves at the same env_steps: the newer, and rather one that training can continue from.
        chosen = max(matches, key=lambda checkpoint: (checkpoint.kind != "policy", checkpoint.sequence))
        if chosen.damage is not None:
            raise CheckpointError(f"{chosen.damage}; {_offer(chosen, found)}")
        return chosen
    if not found and why_empty:
        raise UserError(f"checkpoint '{selector}' not found in {directory}: {why_empty}")
    names = [checkpoint.name for checkpoint in found]
    shown = ", ".join(names[-_MOST_SHOWN:]) or "no checkpoints"
    if selector == "best" and found:
        raise UserError(f"checkpoint 'best' not found in {directory}: no evaluation came before a save; there is {shown}")
    hint = did_you_mean(selector, ["last", "latest", "best", *names])
    raise UserError(f"checkpoint '{selector}' not found in {directory}, which has {shown}{hint}")


def _offer(damaged: Named, found: Sequence[Named]) -> str:
    readable = [each for each in found if each.kind == "full" and each.sequence < damaged.sequence]
    if not readable:
        return "there is no earlier one to go back to"
    return f"the one before it: --checkpoint {max(readable, key=lambda each: each.sequence).name.split('-')[0]}"


def _matching(selector: str, found: Sequence[AnyCheckpoint]) -> list[AnyCheckpoint]:
    if not (selector.isascii() and selector.isdigit()):
        return [checkpoint for checkpoint in found if checkpoint.name == selector]
    # As printed (000004) it is a sequence; any other number is env_steps first, because that is what plots show.
    number = selector.lstrip("0") or "0"
    return (
        [checkpoint for checkpoint in found if checkpoint.name.split("-")[0] == selector]
        or [checkpoint for checkpoint in found if checkpoint.name.split("-")[1] == number]
        or [checkpoint for checkpoint in found if str(checkpoint.sequence) == number]
    )

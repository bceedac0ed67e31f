"""The checkpoints of a run: saved whole or not at all, found by what their manifests say, thinned out by age."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from etude.errors import CheckpointError, UserError
from etude.files.atomic import LEFTOVER_SUFFIX, fsync_directory, read_link, replace_link
from etude.files.regular import own_folder
from etude.files.state_tree import TreeEncoder
from etude.runs.checkpoint_history import Spans, best_ranked, best_until
from etude.runs.checkpoint_selection import best_name, checkpoint_folders, choose_checkpoint, sequence_of
from etude.runs.manifest import MANIFEST_NAME, Manifest, checkpoint_name
from etude.runs.part_files import write_file, write_parts
from etude.runs.saved_checkpoint import Checkpoint
from etude.runs.segment_files import remove_unused, write_segments

__all__ = ["Checkpoint", "CheckpointStore"]

_SAVING, _DELETING = ".saving-", ".deleting-"


class CheckpointStore:
    """A folder of checkpoints that keeps the newest `keep` full ones and the `keep_best` best, and always `last` and `best`.

    With each full one the policy stays that was the best by then: whoever goes back to it finds its `best` as well.
    """

    def __init__(self, directory: Path, keep: int, *, keep_best: int = 1, why_empty: str | None = None) -> None:
        for name, value in (("keep", keep), ("keep_best", keep_best)):
            if value < 1:
                raise UserError(f"checkpoints to {name}={value}: must be at least 1")
        self.directory = directory
        self.keep, self.keep_best = keep, keep_best
        self._why_empty = why_empty
        self._abandoned: Spans = ()

    def save(
        self,
        parts: Mapping[str, object],
        *,
        counters: Mapping[str, int],
        metadata: Mapping[str, object],
        last: bool = True,
        best: bool = False,
    ) -> Checkpoint:
        """Write a new checkpoint, on the disk before this returns; on failure the earlier ones are untouched.

        A tensor in several parts is stored in the first of them, so `policy` comes first to stay loadable on its own.
        `last` only ever points at a full checkpoint, one with more than a policy.
        """
        encoder = TreeEncoder()
        encoded = {part: encoder.encode(part, state) for part, state in parts.items()}
        # Its own encoder: a reference from the manifest into a part is no more allowed than a tensor of its own.
        plain = TreeEncoder()
        abandoned = {"abandoned": [list(span) for span in self._abandoned]} if self._abandoned else {}
        described, tensors = plain.encode("metadata", {**metadata, **abandoned})
        if tensors or plain.segments:
            raise TypeError(f"metadata {next(iter(tensors), '')}: a tensor can't be stored in a manifest")
        sequence = max((sequence_of(path) for path in checkpoint_folders(self.directory)), default=-1) + 1
        name = checkpoint_name(sequence, counters)
        kind = "full" if set(parts) - {"policy"} else "policy"
        temporary = self.directory / f"{_SAVING}{name}"
        try:
            self.remove_leftovers()
            segments = write_segments(self.directory, encoder.segments)
            files = write_parts(temporary, encoded)
            created = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = Manifest(sequence, kind, dict(counters), described, best, created, files, segments)
            write_file(temporary / MANIFEST_NAME, manifest.to_bytes())
            fsync_directory(temporary)
            os.rename(temporary, self.directory / name)
            fsync_directory(self.directory)
            if last and kind == "full":
                replace_link(self.directory / "last", name)
            if best:
                replace_link(self.directory / "best", name)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {name} could not be saved in {self.directory}: {error.strerror or error}; "
                "earlier checkpoints are untouched"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._thin_out(newest=name)
        return Checkpoint.open(self.directory / name)

    def list(self) -> list[Checkpoint]:
        """Every checkpoint, oldest first; one that can't be read has ``kind="damaged"`` and says why."""
        found = self._read()
        best = best_name(self.directory, found)
        return [replace(checkpoint, is_best=checkpoint.name == best) for checkpoint in found]

    def _read(self) -> list[Checkpoint]:
        """As their manifests say: `is_best` is whether one was the best when it was saved."""
        found = []
        for path in checkpoint_folders(self.directory):
            try:
                found.append(Checkpoint.open(path))
            except CheckpointError as error:
                blank = Checkpoint(path, path.name, sequence_of(path), "damaged", {}, {}, "", False, damage=str(error))
                found.append(blank)
        return sorted(found, key=lambda checkpoint: checkpoint.sequence)

    def find(self, selector: str) -> Checkpoint:
        """Find a checkpoint by ``last``, ``best``, its sequence, its env_steps or its folder's name."""
        return choose_checkpoint(selector, self.list(), self.directory, self._why_empty)

    def newest_whole(self) -> Checkpoint:
        """The newest checkpoint to continue from, verified; a damaged one is an error that offers the one before."""
        candidates = [checkpoint for checkpoint in reversed(self.list()) if checkpoint.kind != "policy"]
        if not candidates:
            if self._why_empty:
                raise UserError(f"{self.directory} has no checkpoint to continue from: {self._why_empty}")
            raise CheckpointError(f"{self.directory} has no checkpoint to continue from")
        try:
            candidates[0].verify()
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {_offer(candidates[1:])}") from error
        return candidates[0]

    def go_on_from(self, checkpoint: Checkpoint) -> bool:
        """Go on with the history that ends with a checkpoint, whose best is `best` again.

        Those after it are abandoned: none is the best of anything that follows. Returns whether training could have gone on
        from one of them; what is saved next must then come soon, for until that it is the newest.
        """
        found = self._read()
        later = [saved for saved in found if saved.sequence > checkpoint.sequence]
        spans = [(checkpoint.sequence + 1, max(saved.sequence for saved in later))] if later else []
        self._abandoned = (*checkpoint.abandoned, *spans)
        if later:
            best = best_until(checkpoint, found)
            if best is not None:
                replace_link(self.directory / "best", best)
            else:
                (self.directory / "best").unlink(missing_ok=True)
        return any(saved.kind != "policy" for saved in later)

    def mark_best(self, checkpoint: Checkpoint) -> None:
        """Point `best` at a checkpoint that exists already.

        The link decides which one is best. A manifest is never rewritten: its `is_best` says what was so when it was
        saved, and only counts where there is no link.
        """
        if checkpoint.name not in [path.name for path in checkpoint_folders(self.directory)]:
            raise UserError(f"checkpoint {checkpoint.name} is not in {self.directory}")
        replace_link(self.directory / "best", checkpoint.name)

    def remove_leftovers(self) -> None:
        """Remove what a save that was killed left half-written; for the process that holds the run."""
        own_folder(self.directory)
        for path in self.directory.iterdir():
            if path.name.startswith((_SAVING, _DELETING)):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(".") and path.name.endswith(LEFTOVER_SUFFIX):
                path.unlink(missing_ok=True)

    def _thin_out(self, newest: str) -> None:
        found = self._read()
        full = [checkpoint for checkpoint in found if checkpoint.kind == "full"]
        saved = next(checkpoint for checkpoint in found if checkpoint.name == newest)
        kept = {newest, read_link(self.directory / "last"), best_name(self.directory, found)}
        kept |= {checkpoint.name for checkpoint in full[-self.keep :]}
        kept |= {best_until(checkpoint, found) for checkpoint in full if checkpoint.name in kept}
        kept |= set(best_ranked(saved, found, self.keep_best))
        for checkpoint in found:
            # What can't be read stays: it may be a newer format's, and a person should decide.
            if checkpoint.name not in kept and checkpoint.kind != "damaged":
                doomed = self.directory / f"{_DELETING}{checkpoint.name}"
                # The save has succeeded; what can't be deleted now is tried again at the next one.
                with contextlib.suppress(OSError):
                    os.rename(checkpoint.path, doomed)
                    shutil.rmtree(doomed)
        left = [checkpoint for checkpoint in found if checkpoint.path.exists()]
        # Which segments a checkpoint needs that can't be read, nobody knows.
        if not any(checkpoint.kind == "damaged" for checkpoint in left):
            remove_unused(self.directory, {path for checkpoint in left for path in checkpoint.segments})


def _offer(older: list[Checkpoint]) -> str:
    for distance, checkpoint in enumerate(older):
        try:
            checkpoint.verify()
        except CheckpointError:
            continue
        which = "the one before it is whole" if distance == 0 else "the newest whole one"
        return f"{which}: --checkpoint {checkpoint.name.split('-')[0]}"
    return "there is no other whole one to go back to"

"""A run copied as it stood at one of its checkpoints: rows, settings and exact state, to be resumed as a run of its own.

What goes on from the copy, with the same settings, is to the bit what goes on from the original.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from etude.errors import CheckpointError, EtudeError, UserError
from etude.files.atomic import fsync_directory, read_link, replace_link
from etude.files.regular import open_descriptor, own_folder, read_bytes
from etude.runs import trust
from etude.runs.checkpoint_history import best_until
from etude.runs.checkpoint_selection import checkpoint_folders
from etude.runs.layout import RunLayout
from etude.runs.records import write_record
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint

# What the record says of the original alone: how it stands and who holds it.
_ITS_OWN = (
    "version",
    "id",
    "name",
    "created",
    "status",
    "pid",
    "pid_started",
    "host",
    "group",
    "tags",
    "stop_reason",
    "cleaned",
)


def clone_run(source: Run, root: Path, *, group: str | None, checkpoint: str | None = None, held: bool = False) -> Run:
    """Return a new run under `root` that stands where `source` stood at a checkpoint (its newest by default).

    `held`: this process has the run's lock already. The original is left as it is.
    """
    with ExitStack() as stack:
        if not held:
            stack.enter_context(source.lock())
        found = _to_go_on_from(source, checkpoint)
        record = source.record
        facts = {key: value for key, value in record.items() if key not in _ITS_OWN}
        facts["cloned_from"] = {"run": source.id, "checkpoint": found.name}

        def furnish(path: Path) -> None:
            _copy_rest(source, found, path)
            _sign(source, path)

        try:
            run = Run.create(
                root,
                name=str(record.get("name", source.id)),
                config_yaml=read_bytes(source.config_path).decode(),
                resolved_yaml=read_bytes(source.resolved_path).decode(),
                group=group,
                tags=[str(tag) for tag in record.get("tags") or ()],
                facts=facts,
                furnish=furnish,
            )
        except OSError as error:
            raise EtudeError(f"run {source.id} can't be copied: {error}") from error
    run.update_status(status="interrupted", stop_reason=f"a copy of {source.id} at checkpoint {found.name}")
    return run


def export_run(source: Run, folder: Path, *, held: bool = False) -> Path:
    """Write a copy of a run as it stands at its newest checkpoint into `folder`, under the run's id; returns its path."""
    with ExitStack() as stack:
        if not held:
            stack.enter_context(source.lock())
        found = _to_go_on_from(source, None)
        target = RunLayout(own_folder(folder) / source.id)
        try:
            target.path.mkdir()
            for made in (target.checkpoints_path, target.logs, target.videos):
                made.mkdir()
            for path in (source.config_path, source.resolved_path):
                _copy(path, target.path / path.name)
            _copy_rest(source, found, target.path)
            _sign(source, target.path)
            # Last: a folder without run.json is not a run yet.
            write_record(target.record_path, {**source.record, "status": "interrupted"})
        except BaseException as error:
            shutil.rmtree(target.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise EtudeError(f"run {source.id} can't be copied to {folder}: {error}") from error
            raise
    return target.path


def exported_run(folder: Path) -> Run:
    """Return the run that `export_run` wrote into `folder`."""
    found = sorted(path.parent for path in folder.glob("*/run.json"))
    if len(found) != 1:
        raise UserError(f"{folder}: no saved run of Etude's there" if not found else f"{folder}: more than one saved run there")
    return Run.open(found[0])


def _to_go_on_from(source: Run, checkpoint: str | None) -> Checkpoint:
    store = source.checkpoints()
    found = store.newest_whole() if checkpoint is None else store.find(checkpoint)
    if found.kind != "full":
        raise UserError(f"checkpoint {found.name} holds only the policy; training can go on from a full one")
    found.verify()
    return found


def _copy_rest(source: Run, checkpoint: Checkpoint, target: Path) -> None:
    there = RunLayout(target)
    # Rows from after the checkpoint are set aside by whoever resumes.
    for path in (source.metrics_path, source.summary_path, source.logs / "changes.jsonl"):
        if path.exists():
            _copy(path, target / path.relative_to(source.path))
    _copy_tree(source.path / "provenance", target / "provenance", but="origin.json")
    _copy_checkpoint(checkpoint, there.checkpoints_path)
    replace_link(there.checkpoints_path / "last", checkpoint.name)
    best = _best_by(source, checkpoint)
    if best is not None:
        if best.name != checkpoint.name:
            _copy_checkpoint(best, there.checkpoints_path)
        replace_link(there.checkpoints_path / "best", best.name)
    fsync_directory(there.checkpoints_path)


def _best_by(source: Run, checkpoint: Checkpoint) -> Checkpoint | None:
    """The checkpoint that was the best when this one was saved; one that can't be read any more is nobody's best."""
    found = []
    for path in checkpoint_folders(source.checkpoints_path):
        try:
            found.append(Checkpoint.open(path))
        except CheckpointError:
            continue
    name = best_until(checkpoint, found)
    if name is None and read_link(source.checkpoints_path / "best") == checkpoint.name:
        name = checkpoint.name
    return next((saved for saved in found if saved.name == name), None)


def _copy_checkpoint(checkpoint: Checkpoint, target: Path) -> None:
    _copy_tree(checkpoint.path, target / checkpoint.name, shared=True)
    for path in checkpoint.segments:
        place = target / path
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy(checkpoint.path.parent / path, place, shared=True)
            fsync_directory(place.parent)


def _copy_tree(source: Path, target: Path, *, but: str | None = None, shared: bool = False) -> None:
    """Copy a folder of regular files; a link in it is refused, never followed."""
    if not source.is_dir():
        return
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.name == but:
            continue
        if path.is_dir() and not path.is_symlink():
            _copy_tree(path, target / path.name, shared=shared)
        else:
            _copy(path, target / path.name, shared=shared)
    fsync_directory(target)


def _copy(source: Path, target: Path, *, shared: bool = False) -> None:
    """Copy a regular file, on the disk before this returns; `shared` ones never change and may be two names of one file."""
    with open(open_descriptor(source, os.O_RDONLY), "rb") as read:
        if shared:
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError:
                pass  # another file system, or one without such links
            else:
                return
        with open(target, "xb") as written:
            shutil.copyfileobj(read, written, 2**20)
            written.flush()
            os.fsync(written.fileno())


def _sign(source: Run, target: Path) -> None:
    """A copy is the user's own where the original is, its stored code included."""
    if trust.is_own(source.path) and trust.is_own_code(source.path):
        trust.sign(target)

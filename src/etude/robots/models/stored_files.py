"""A user's robot as part of a run: its YAML, its model and all that names are copied, and used from then on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from etude.config.robots import RobotConfig
from etude.errors import EtudeError
from etude.files.atomic import write_json_atomic
from etude.files.documents import DocumentError, read_json
from etude.files.regular import own_folder
from etude.robots.models.description import SUFFIXES, load_robot, shipped_robots
from etude.robots.models.stored_networks import check_stored, store_networks, use_stored_networks

FOLDER = "robot"
NOTE = "robot.json"
PACKAGE_NOTE = "robot_package.json"
LARGEST = 2**30
"""Far more bytes than any mesh has."""


def store_robot(task: RobotConfig | None, provenance: Path) -> None:
    """Copy the files of a robot that is the user's own; of one of another package, note what they hash to."""
    if task is None:
        return
    store_networks(task, provenance)
    if task.model in shipped_robots():
        return
    if Path(task.model).suffix not in SUFFIXES:
        write_json_atomic(provenance / PACKAGE_NOTE, {"model": task.model, "files": _hashes_in_package(task.model)})
        return
    from etude.robots.models.model_files import files_of  # which needs MuJoCo

    given = Path(task.files or Path(task.model).expanduser()).resolve()
    files = {given, *files_of(load_robot(str(given)).path)}
    top = Path(os.path.commonpath([path.parent for path in files]))
    hashes = {}
    for path in sorted(files):
        inside, content = path.relative_to(top).as_posix(), path.read_bytes()
        target = provenance / FOLDER / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        hashes[inside] = hashlib.sha256(content).hexdigest()
    note = {"model": task.model, "entry": given.relative_to(top).as_posix(), "files": hashes}
    write_json_atomic(provenance / NOTE, note)


def use_stored_robot(task: RobotConfig | None, provenance: Path) -> str | None:
    """Let a task use the files that are stored with its run; returns a line where the original has changed since.

    Files that are not what was stored are an error: going on with another robot would be another run.
    """
    said = (None if task is None else use_stored_networks(task, provenance), _use_stored_model(task, provenance))
    return "; ".join(line for line in said if line) or None


def _use_stored_model(task: RobotConfig | None, provenance: Path) -> str | None:
    if task is not None and (provenance / PACKAGE_NOTE).is_file():
        return _change_in_package(task, provenance / PACKAGE_NOTE)
    note = _note(provenance / NOTE)
    if note is None or task is None or note["model"] != task.model:
        return None  # made before files were stored, a robot that has none, or another one from now on
    for name, digest in note["files"].items():
        _check_copy(provenance / FOLDER, name, digest)
    entry = Path(note["entry"])
    object.__setattr__(task, "files", str((provenance / FOLDER / entry).resolve()))
    original = Path(task.model).expanduser().resolve()
    if not original.is_file() or len(original.parents) < len(entry.parts):
        return None
    top = original.parents[len(entry.parts) - 1]
    changed = [name for name, digest in note["files"].items() if _digest(top / name) != digest]
    if not changed:
        return None
    return f"the robot's files have changed since: {', '.join(changed[:3])}; the run goes on with those that are stored with it"


def _hashes_in_package(model: str) -> dict[str, str]:
    """Return what every file of a robot of another package hashes to, by its name within their common folder."""
    from etude.robots.models.model_files import files_of  # which needs MuJoCo

    files = files_of(load_robot(model).path)
    top = Path(os.path.commonpath([path.parent for path in files]))
    return {path.relative_to(top).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def _change_in_package(task: RobotConfig, path: Path) -> str | None:
    """Return a line where the files of a robot of another package are not those that the run began with."""
    try:
        note: Any = read_json(path)
    except DocumentError as error:
        raise EtudeError(f"{path}: {error}; it says which robot the run was made with: put it back from a backup") from error
    if not isinstance(note, Mapping) or not isinstance(note.get("files"), Mapping) or note.get("model") != task.model:
        return None  # another robot from now on
    was, now = note["files"], _hashes_in_package(task.model)
    changed = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    if not changed:
        return None
    return (
        f"the files of the robot {task.model} have changed since: {', '.join(changed[:3])}; the run goes on with those of the "
        "package as it is now, which is another robot: install the version that the run began with"
    )


def _note(path: Path) -> Mapping[str, Any] | None:
    """Return what is noted of a robot's files. A run can come from a stranger: no name in it leads out of their folder."""
    try:
        note: Any = read_json(path)
    except FileNotFoundError:
        return None
    except DocumentError as error:
        raise EtudeError(f"{path}: {error}; it says which robot the run was made with: put it back from a backup") from error
    files = note.get("files") if isinstance(note, Mapping) else None
    is_sound = (
        isinstance(files, Mapping)
        and isinstance(note.get("model"), str)
        and note.get("entry") in files
        and all(isinstance(digest, str) and _stays_inside(name) for name, digest in files.items())
    )
    if not is_sound:
        raise EtudeError(f"{path}: is no note of a robot's files; put it back from a backup")
    return note


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _check_copy(folder: Path, name: str, digest: str) -> None:
    path = folder / name
    own_folder(folder)
    for above in path.relative_to(folder).parents:
        own_folder(folder / above)
    check_stored(path, digest, LARGEST, "another robot")


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

"""Networks of motors as part of a run: copied with it, checked by their hashes, and used from then on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.config.robots import RobotConfig
from etude.errors import EtudeError, UserError
from etude.files.atomic import write_json_atomic
from etude.files.documents import DocumentError, read_json
from etude.files.regular import own_folder, read_bytes
from etude.robots.models.description import SUFFIXES, RobotDescription, load_robot
from etude.robots.motors.named import paths_of_networks
from etude.robots.motors.network import LARGEST, files_of_network
from etude.robots.motors.network import SUFFIXES as KINDS

FOLDER = "motors"
NOTE = "motors.json"


def store_networks(task: RobotConfig, provenance: Path) -> None:
    """Copy the networks that a task's motors name; a task without one has no folder for them."""
    found = paths_of_networks(task, _description(task))
    if not found:
        return
    folder = provenance / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    note: dict[str, Any] = {}
    for number, (named, (path, _)) in enumerate(found.items()):
        hashes = {}
        for file, kind in zip(files_of_network(path), KINDS, strict=True):
            content = read_bytes(file.resolve(), LARGEST)
            (folder / f"{number}{kind}").write_bytes(content)
            hashes[kind] = hashlib.sha256(content).hexdigest()
        note[named] = {"number": number, "files": hashes}
    write_json_atomic(provenance / NOTE, {"networks": note})


def use_stored_networks(task: RobotConfig, provenance: Path) -> str | None:
    """Let a task use the networks that are stored with its run; returns a line where an original has changed since."""
    note = _note(provenance / NOTE)
    if not note:
        return None
    folder, originals, changed = provenance / FOLDER, _originals(task), []
    stored: dict[str, str] = {}
    for named, said in note.items():
        own_folder(folder)
        for kind, digest in said["files"].items():
            check_stored(folder / f"{said['number']}{kind}", digest, LARGEST, "other motors")
        stored[named] = str((folder / str(said["number"])).resolve())
        files = files_of_network(originals[named]) if named in originals else ()
        if any(file.is_file() and _digest(file) != said["files"][kind] for file, kind in zip(files, KINDS, strict=False)):
            changed.append(named)
    object.__setattr__(task, "networks", stored)
    if not changed:
        return None
    return f"networks of motors have changed since: {', '.join(changed)}; the run goes on with those that are stored with it"


def _description(task: RobotConfig) -> RobotDescription:
    """A robot's own motors matter only where a task does not say others, and only a YAML can name networks."""
    is_own = not task.actuators and Path(task.model).suffix in SUFFIXES
    return load_robot(task.files or task.model) if is_own else RobotDescription(file="", actuators={})


def _originals(task: RobotConfig) -> dict[str, Path]:
    try:
        # Where the robot's own YAML was: its copy in the run has no networks beside it.
        described = _description(task) if task.files is None else load_robot(task.model)
        return {named: path for named, (path, _) in paths_of_networks(replace(task), described).items()}
    except UserError:
        return {}  # which is gone, and no matter


def _note(path: Path) -> Mapping[str, Any]:
    """Return {as it is named: {number, files}}. A run can come from a stranger: nothing in it is the name of a file."""
    try:
        note: Any = read_json(path)
    except FileNotFoundError:
        return {}
    except DocumentError as error:
        raise EtudeError(f"{path}: {error}; it says which motors the run was made with: put it back from a backup") from error
    networks: Any = note.get("networks") if isinstance(note, Mapping) else None
    is_sound = isinstance(networks, Mapping) and all(
        isinstance(each, Mapping)
        and type(each.get("number")) is int
        and isinstance(each.get("files"), Mapping)
        and set(each["files"]) == set(KINDS)
        for each in networks.values()
    )
    if not is_sound:
        raise EtudeError(f"{path}: is no note of motors' networks; put it back from a backup")
    return networks


def check_stored(path: Path, digest: str, largest: int, other: str) -> None:
    """Raise unless a file that is stored with a run is what it was: a run that was made with `other` would go on with it."""
    try:
        found = hashlib.sha256(read_bytes(path, largest)).hexdigest()
    except FileNotFoundError:
        found = None
    if found != digest:
        what = "is missing" if found is None else "is not the file that was stored"
        raise EtudeError(f"{path}: {what}: the run was made with {other}; put the file back from a backup")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""A checkpoint's manifest: what it holds, and the size and hash of every file, written last.

A checkpoint can come from a stranger, so nothing here follows a link, leaves the folder or reads without a limit.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from etude.errors import CheckpointError
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import read_bytes

FORMAT = 2
# Format n to the manifest of format n + 1.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda content: {**content, "segments": {}},  # before there were any
}
MANIFEST_NAME = "manifest.json"
MAX_JSON = 64 * 2**20
MAX_NESTING = 400
"""Each level of a state tree can be three levels of JSON."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileRecord:
    """What a file must look like to be the one that was saved."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``; `metadata` is still encoded as a state tree."""

    sequence: int
    kind: str
    counters: Mapping[str, int]
    metadata: object
    is_best: bool
    created: str
    files: Mapping[str, FileRecord]
    segments: Mapping[str, FileRecord] = field(default_factory=dict)
    """Files beside the checkpoint that it shares with others."""

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON with a checksum of itself."""
        content = {"format": FORMAT, **asdict(self)}
        return _serialized({**content, "checksum": _checksum(content)})

    @property
    def name(self) -> str:
        """The name of the folder it was saved in."""
        return checkpoint_name(self.sequence, self.counters)


def checkpoint_name(sequence: int, counters: Mapping[str, int]) -> str:
    """Return the name of a checkpoint's folder."""
    return f"{sequence:06d}-{counters['env_steps']}-{counters['updates']}"


def damaged(directory: Path, file: str, reason: str) -> CheckpointError:
    """The error for a checkpoint that is not what was saved."""
    return CheckpointError(f"checkpoint {directory.name} is damaged: {file}: {reason}")


def read_manifest(directory: Path) -> Manifest:
    """Read and check ``manifest.json``; the files it names are not opened."""
    if directory.is_symlink():
        raise damaged(directory, directory.name, "is a link, which is never followed")
    written = _read_limited(directory, MANIFEST_NAME)
    content = _parse_json(directory, MANIFEST_NAME, written)
    if not isinstance(content, dict):
        raise damaged(directory, MANIFEST_NAME, "not a manifest")
    version = content.get("format")
    if type(version) is not int or version < 1:
        raise damaged(directory, MANIFEST_NAME, f"format {str(version)[:40]} is not a version")
    if version > FORMAT:
        raise CheckpointError(
            f"checkpoint {directory.name} was written by a newer Etude "
            f"(format {str(version)[:40]}, this one reads up to {FORMAT}); upgrade Etude to use it"
        )
    # The bytes too: the checksum is of what they mean, and a flipped bit in the last digit of a number can mean the same.
    unchanged = written == _serialized(content)
    checksum = content.pop("checksum", None)
    if not unchanged or checksum != _checksum(content):
        raise damaged(directory, MANIFEST_NAME, "checksum differs")
    try:
        while version < FORMAT:
            content = MIGRATIONS[version](content)
            version += 1
        manifest = _parse(content)
        saved_as = manifest.name
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error.args[0] if error.args else error}"
        raise damaged(directory, MANIFEST_NAME, f"bad or missing {reason[:120]}") from error
    if saved_as != directory.name:
        raise damaged(directory, MANIFEST_NAME, f"is of checkpoint {saved_as[:120]}; was the folder renamed?")
    return manifest


def read_json(directory: Path, relative: str) -> object:
    """Parse a JSON file of the checkpoint, whatever a stranger put there."""
    return _parse_json(directory, relative, _read_limited(directory, relative))


def _read_limited(directory: Path, relative: str) -> bytes:
    path = inside(directory, relative)
    try:
        return read_bytes(path, MAX_JSON)
    except OSError as error:
        raise damaged(directory, relative, error.strerror or str(error)) from error


def _parse_json(directory: Path, relative: str, data: bytes) -> object:
    try:
        return parse_json(data, deepest=MAX_NESTING)
    except DocumentError as error:
        raise damaged(directory, relative, str(error)) from error


def inside(directory: Path, relative: str, *, root: Path | None = None) -> Path:
    """Return the path of a regular file inside the checkpoint (or `root`) that is reached without any link."""
    if not _PLAIN_PATH.fullmatch(relative):
        raise damaged(directory, relative[:120], "not a plain path inside the checkpoint")
    path, mode = root or directory, 0
    for step in relative.split("/"):
        path = path / step
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            reason = "missing" if isinstance(error, FileNotFoundError) else str(error)
            raise damaged(directory, relative, reason) from error
        if stat.S_ISLNK(mode):
            raise damaged(directory, relative, "is or passes through a link, which is never followed")
    if not stat.S_ISREG(mode):
        raise damaged(directory, relative, "not a regular file")
    return path


def check_file(directory: Path, relative: str, record: FileRecord, *, root: Path | None = None) -> Path:
    """Return the file's path once its size and hash are those of the manifest; it lies in `root`, if not in the checkpoint."""
    path = inside(directory, relative, root=root)
    try:
        size = path.stat().st_size
        if size != record.size:
            raise damaged(directory, relative, f"{size} bytes instead of {record.size}")
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise damaged(directory, relative, error.strerror or str(error)) from error
    if digest != record.sha256:
        raise damaged(directory, relative, "hash differs")
    return path


def _serialized(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _parse(content: dict[str, Any]) -> Manifest:
    def expect(key: str, kind: type) -> Any:
        if type(content[key]) is not kind:
            raise ValueError(f"{key}={str(content[key])[:60]}")
        return content[key]

    kind, counters = expect("kind", str), expect("counters", dict)
    if kind not in ("full", "policy"):
        raise ValueError(f"kind={kind[:60]}")
    if any(type(count) is not int for count in counters.values()):
        raise ValueError("counters")
    return Manifest(
        sequence=expect("sequence", int),
        kind=kind,
        counters=counters,
        metadata=expect("metadata", dict),
        is_best=expect("is_best", bool),
        created=expect("created", str),
        files=_parse_files(expect("files", dict)),
        segments=_parse_files(expect("segments", dict)),
    )


def _parse_files(content: dict[str, Any]) -> dict[str, FileRecord]:
    files = {}
    for path, record in content.items():
        if not _PLAIN_PATH.fullmatch(path):
            raise ValueError(f"path {path[:60]!r}: not a plain path inside the checkpoint")
        files[path] = FileRecord(record["sha256"], record["size"])
        if type(record["size"]) is not int or not _SHA256.fullmatch(record["sha256"]):
            raise ValueError(f"record of {path[:60]}")
    return files

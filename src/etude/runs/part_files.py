"""The two files of a checkpoint's part: its JSON state and its tensors."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch

from etude.errors import CheckpointError
from etude.files.atomic import fsync_directory
from etude.runs.manifest import MAX_JSON, FileRecord
from etude.runs.tensor_file import write_tensors

STATE_NAME = "state.json"
TENSORS_NAME = "tensors.safetensors"
_PART = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")


def write_parts(directory: Path, encoded: Mapping[str, tuple[object, dict[str, torch.Tensor]]]) -> dict[str, FileRecord]:
    """Write the encoded parts into the new folder `directory`, fsynced; returns what a manifest says of each file."""
    files: dict[str, FileRecord] = {}
    for part, (state, tensors) in encoded.items():
        if not _PART.fullmatch(part):
            raise ValueError(f"part '{part}': a part is named like policy or rank/0")
        folder = directory / part
        folder.mkdir(parents=True)
        data = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
        if len(data) > MAX_JSON:
            raise CheckpointError(
                f"part '{part}' has {len(data)} bytes of state that is not tensors, more than the {MAX_JSON} that can "
                "be loaded again; keep long lists as tensors"
            )
        files[f"{part}/{STATE_NAME}"] = write_file(folder / STATE_NAME, data)
        files[f"{part}/{TENSORS_NAME}"] = FileRecord(*write_tensors(folder / TENSORS_NAME, tensors))
        relative = folder.relative_to(directory)
        for written in (relative, *relative.parents):
            fsync_directory(directory / written)
    return files


def write_file(path: Path, data: bytes) -> FileRecord:
    """Write a new file, fsynced."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(hashlib.sha256(data).hexdigest(), len(data))

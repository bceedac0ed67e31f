"""Where datasets live, and what they may be called."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from etude.errors import UserError, did_you_mean
from etude.files.printable import one_line

MANIFEST = "dataset.json"
SEGMENTS = "segments"
LOCK = ".lock"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEEPEST = 4
"""Parts of a name: `mujoco/hopper/expert-v0` has three."""


def default_root() -> Path:
    """Return $ETUDE_DATASETS, or ./datasets."""
    return Path(os.environ.get("ETUDE_DATASETS") or "datasets")


def check_name(name: str) -> str:
    """Return a dataset's name; UserError for one that would lead out of the root or can't be a folder."""
    parts = name.split("/")
    if len(parts) > _DEEPEST or not all(_PART.fullmatch(part) and part != SEGMENTS for part in parts):
        raise UserError(
            f"dataset '{one_line(name)}': a name is up to {_DEEPEST} words of letters, digits, dots, dashes and underscores, "
            "with / between them"
        )
    return name


def folder_of(name: str, root: Path) -> Path:
    """Return the folder of a dataset below `root`; UserError where a link stands on the way there."""
    folder = root
    for part in check_name(name).split("/"):
        folder = folder / part
        if folder.is_symlink():
            raise UserError(f"dataset '{name}': {folder} is a link, which is never followed here")
    return folder


def existing(name: str, root: Path) -> Path:
    """Return the folder of a dataset that is there."""
    folder = folder_of(name, root)
    if not (folder / MANIFEST).is_file():
        hint = did_you_mean(name, names(root))
        raise UserError(f"there is no dataset '{name}' in {root}{hint or '; `etude dataset list` shows what there is'}")
    return folder


def names(root: Path) -> list[str]:
    """Return the names of the datasets below `root`, sorted."""
    return sorted(_names(root, "", 1))


def _names(folder: Path, prefix: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and _PART.fullmatch(entry.name)]
    except OSError:
        return
    for name in found:
        if (folder / name / MANIFEST).is_file():
            yield f"{prefix}{name}"
        elif depth < _DEEPEST and name != SEGMENTS:
            yield from _names(folder / name, f"{prefix}{name}/", depth + 1)

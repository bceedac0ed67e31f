"""What `etude tune` searches for each algorithm: a file of data beside this one."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.config.source_file import parse_yaml, read_file
from etude.errors import UserError

_FOLDER = files("etude.tuning") / "spaces"


def tuned_algorithms() -> list[str]:
    """Return the algorithms that have a space of their own."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))


def default_space(algorithm: str) -> dict[str, Any]:
    """Return what to search for an algorithm, as the `sweep` section of a sweep's file."""
    if algorithm not in tuned_algorithms():
        known = ", ".join(tuned_algorithms())
        raise UserError(f"{algorithm} has no search space of its own (there are: {known}); give one with --space FILE")
    text = (_FOLDER / f"{algorithm}.yaml").read_text(encoding="utf-8")
    return parse_yaml(text, f"{algorithm}.yaml")


def space_file(path: Path) -> dict[str, Any]:
    """Return the space in a file of the user's: that section alone, or a whole sweep's file with it."""
    data = read_file(path).data
    inner = data.get("sweep")
    return dict(inner) if isinstance(inner, dict) else data

"""Brings run records written by earlier versions up to the current one; what a record lacks is in the files beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 2


def migrate_record(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the record of the run in `folder` in the current version; its file is left as it is."""
    while record["version"] < VERSION:
        version = record["version"]
        record = {**MIGRATIONS[version](record, folder), "version": version + 1}
    return record


def record_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each field that a migration changed."""
    names = sorted({*before, *after})
    return [
        f"run.json: {name}: {before.get(name)} → {after.get(name)}" for name in names if before.get(name) != after.get(name)
    ]


def _with_facts(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Version 2 says what the run is of; version 1 left that to the config and the summary."""
    config, summary = _yaml(folder / "resolved.yaml"), _json(folder / "summary.json")
    facts = {
        "environment": _at(config, "environment", "id"),
        "algorithm": _at(config, "algorithm", "name"),
        "seed": _at(config, "experiment", "seed"),
        "total_steps": _at(config, "training", "total_steps"),
        "config_hash": summary.get("config_hash"),
        # What it is made of would have to be composed again; comparing goes by the settings where there is none.
        "setup_hash": None,
    }
    return {**facts, **record}


MIGRATIONS: dict[int, Callable[[dict[str, Any], Path], dict[str, Any]]] = {1: _with_facts}
"""From a version to the function that turns its records into the next version's."""


def _at(data: object, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str | int | float | None) else None


def _yaml(path: Path) -> dict[str, Any]:
    from etude.files.documents import read_yaml  # here: records of today need no YAML, and listing runs must not wait for it

    return _object(path, read_yaml)


def _json(path: Path) -> dict[str, Any]:
    from etude.files.documents import read_json

    return _object(path, read_json)


def _object(path: Path, read: Callable[[Path], Any]) -> dict[str, Any]:
    try:
        data = read(path)
    except (OSError, ValueError):  # a DocumentError is a ValueError
        return {}
    return data if isinstance(data, dict) else {}

"""Brings configs written by earlier versions of the schema up to the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.config.schema import SCHEMA_VERSION
from etude.errors import ConfigError


def _greedy(data: dict[str, Any]) -> dict[str, Any]:
    """The deterministic way to act was called `mode`, and so were the metrics of a second way."""
    evaluation, checkpoint = data.get("evaluation"), data.get("checkpoint")
    if isinstance(evaluation, Mapping) and evaluation.get("mode") == "mode":
        data = {**data, "evaluation": {**evaluation, "mode": "greedy"}}
    if isinstance(checkpoint, Mapping) and str(checkpoint.get("monitor")).startswith("eval/mode_"):
        monitor = f"eval/greedy_{str(checkpoint['monitor']).removeprefix('eval/mode_')}"
        data = {**data, "checkpoint": {**checkpoint, "monitor": monitor}}
    return data


# From a version to the function that turns its configs into the next version's.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _greedy}


def migration_changes(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting that bringing `data` up to date changes; none if it is of today."""
    before, after = flat(data), flat(migrate(data))
    names = sorted({*before, *after} - {"version"})
    return [f"config: {name}: {before.get(name)} → {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def migrate(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` in the current schema version; a newer one is refused."""
    migrated = dict(data)
    version = migrated.get("version", SCHEMA_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ConfigError(f"version={version}: must be a whole number from 1 to {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise ConfigError(f"version={version}: written by a newer Etude (this one reads up to {SCHEMA_VERSION}); upgrade it")
    for step in range(version, SCHEMA_VERSION):
        migrated = MIGRATIONS[step](migrated)
        migrated["version"] = step + 1
    return migrated


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting by its full name, such as algorithm.gamma."""
    named: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            named |= flat(value, f"{prefix}{key}.")
        else:
            named[f"{prefix}{key}"] = value
    return named

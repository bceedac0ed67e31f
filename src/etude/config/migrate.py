"""Brings configs written by earlier versions of the schema up to the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.config.schema import SCHEMA_VERSION
from etude.errors import ConfigError

# From a version to the function that turns its configs into the next version's.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


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

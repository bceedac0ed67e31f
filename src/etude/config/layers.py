"""Laying one part of a config over another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """Settings that come from one place."""

    origin: str
    """That place, for people: a preset, a file, the command line."""
    values: dict[str, Any]


def overlay(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `layer` over `base`: mappings merge, all else replaces. A part of another type starts from nothing."""
    merged = dict(base)
    for key, value in layer.items():
        below = merged.get(key)
        if isinstance(value, str) and isinstance(below, Mapping) and "type" in below:
            value = {"type": value}  # `optimizer: adamw` is short for {type: adamw}
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _other_part(key, below, value):
            merged[key] = overlay(below, value)
        else:
            merged[key] = value
    return merged


def overlay_all(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay all layers over each other, the first at the bottom."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = overlay(merged, layer)
    return merged


def restrict(data: Mapping[str, Any], pattern: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of `data` has a place in `pattern` too."""
    return {
        key: restrict(value, pattern[key]) if isinstance(value, Mapping) and isinstance(pattern[key], Mapping) else value
        for key, value in data.items()
        if key in pattern
    }


def has(data: Mapping[str, Any], path: str) -> bool:
    """Whether there is something at a dotted path."""
    node: Any = data
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True


def take(data: dict[str, Any], path: str) -> Any:
    """Remove what is at a dotted path, and return it."""
    *parents, last = path.split(".")
    node = data
    for part in parents:
        node = node[part]
    return node.pop(last)


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making the mappings on the way; raises TypeError if a plain value is there."""
    *parents, last = path.split(".")
    node = data
    for part in parents:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise TypeError(f"'{part}' is a plain value")
    node[last] = value


def _other_part(key: str, below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    kind = "name" if key == "algorithm" else "type"
    return kind in above and kind in below and above[kind] != below[kind]

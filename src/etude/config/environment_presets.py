"""The presets that come with Etude for an environment: its family's, and over that its own.

Both have the same form: settings for any algorithm at the top (or under `_base`), and a block for each variant, which is an
algorithm by its name or one with its own name. A family's preset is `presets/family/NAME.yaml`, by the names of
`etude.environments.families`; an environment's is `presets/environment/ID.yaml`, with `--` for a slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from etude.config import aliases, class_specs, groups
from etude.config.layers import overlay, overlay_all
from etude.config.registry import FAMILY_OF, algorithms, load_object
from etude.config.schema import Config
from etude.config.source_file import parse_yaml
from etude.config.validate import field_types

SECTIONS = tuple(field_types(Config))
RESERVED = (*SECTIONS, "defaults", groups.EXTENDS, "buffer", "workflow", "components", "controllers")
RESERVED += (*class_specs.SECTIONS, *class_specs.OTHER_SECTIONS)
"""Sections and keys at the top of a file that are no variants of it."""


@dataclass(frozen=True)
class Preset:
    """A preset, read: what it says for any algorithm, and its variants."""

    title: str
    """Whose it is, for people."""
    shared: dict[str, Any]
    blocks: dict[str, dict[str, Any]]

    def block(self, *names: str | None) -> str | None:
        """Return the first of these names that it has a block for."""
        return next((name for name in names if name in self.blocks), None)

    def layers(self, block: str | None) -> list[tuple[str, dict[str, Any]]]:
        """Return its settings with where each part of them comes from; the block lies over what all have in common."""
        found = [(self.title, self.shared)] if self.shared else []
        if block is not None:
            found.append((f"{self.title}:{block}", with_name(self.blocks[block], block, self.shared)))
        return found


def preset_of(environment: str) -> Preset:
    """Return the preset of an environment; one that has none gets an empty one."""
    return _split(environment_preset(environment), f"environment preset {environment}")


def family_preset_of(environment: str) -> Preset:
    """Return the preset of the family that an environment belongs to; an empty one where the family has none."""
    family = family_name(environment)
    return _split(_read("family", family), f"family preset {family}")


def family_name(environment: str) -> str:
    """Return the name of the family that an environment belongs to, such as atari."""
    return load_object(FAMILY_OF)(environment).name


def family_presets() -> dict[str, dict[str, Any]]:
    """Return every shipped preset of a family by the family's name."""
    return {name: _read("family", name) for name in _names("family")}


def environment_presets() -> dict[str, dict[str, Any]]:
    """Return every shipped environment preset by environment id."""
    return {name.replace("--", "/"): environment_preset(name) for name in _names("environment")}


def environment_preset(environment: str) -> dict[str, Any]:
    """Return the preset of an environment: base settings at the top (or under `_base`) and one block per variant.

    A preset whose defaults list names others begins as they are.
    """
    document = _read("environment", environment.replace("/", "--"))
    others = [str(other) for other in document.pop("defaults", ()) if other != "_self_"]
    return overlay_all([*map(environment_preset, others), document]) if others else document


def variants(document: Mapping[str, Any]) -> list[str]:
    """Return the variants that a preset or a file defines."""
    reserved = {*RESERVED, *aliases.ALIASES}
    return [
        key for key, value in document.items() if isinstance(value, Mapping) and key not in reserved and not key.startswith("_")
    ]


def with_name(block: Mapping[str, Any], variant: str, below: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A block called `ppo` is one of ppo's, unless it or what lies below it names its algorithm."""
    named = aliases.normalize(overlay(below or {}, block))[0].get("algorithm")
    if variant in algorithms.names() and not (isinstance(named, Mapping) and named.get("name")):
        return overlay(block, {"algorithm": {"name": variant}})
    return dict(block)


def _split(document: Mapping[str, Any], title: str) -> Preset:
    blocks = variants(document)
    shared = {key: value for key, value in document.items() if key not in (*blocks, "_base")}
    return Preset(title, overlay(document.get("_base") or {}, shared), {name: dict(document[name]) for name in blocks})


def _names(group: str) -> list[str]:
    folder = resources.files(groups.PRESETS).joinpath(group)
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def _read(group: str, name: str) -> dict[str, Any]:
    file = resources.files(groups.PRESETS).joinpath(group, f"{name}.yaml")
    return deepcopy(_parse(file.read_text(encoding="utf-8"), f"{name}.yaml")) if file.is_file() else {}


@cache
def _parse(text: str, where: str) -> dict[str, Any]:
    """Reading YAML is two thirds of composing a config: every shipped preset is read once in a process."""
    return parse_yaml(text, where)

"""The `key=value` words of a command line, in Hydra's grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.errors import ConfigError

# Groups that a `+group=name` or `group=name` word can choose a preset file from.
GROUPS = ("experiment", "algorithm", "environment", "network", "buffer", "robot")


@dataclass(frozen=True)
class Overrides:
    """What the words of a command line ask for."""

    values: dict[str, Any] = field(default_factory=dict)
    """Dotted keys and their values, as one nested layer."""
    groups: tuple[str, ...] = ()
    """Choices of preset files, left to Hydra."""


def parse(words: Sequence[str]) -> Overrides:
    """Read `algorithm.gamma=0.98`, `network.actor.hidden_dims=[64,64]`, `+experiment=ppo_cartpole` and the like."""
    if not words:
        return Overrides()
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    values: dict[str, Any] = {}
    groups: list[str] = []
    for word in words:
        try:
            override = parser.parse_override(word)
        except HydraException:
            key, equals, _ = word.partition("=")
            hint = "quote values with special characters: 'key=\"a value\"'" if equals else "write it as key=value"
            raise ConfigError(f"{word}: can't be read; {hint}") from None
        key = override.key_or_group
        if override.is_sweep_override():
            raise ConfigError(f"{word}: several values in one run; a list is written {key}=[1,2]")
        if override.is_delete():
            raise ConfigError(f"{word}: settings can't be removed; set {key}=null where it may be empty")
        if key in GROUPS and isinstance(override.value(), str):
            groups.append(word)
        else:
            _put(values, key, _plain(override.value()), word)
    return Overrides(values, tuple(groups))


def _plain(value: Any) -> Any:
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _put(values: dict[str, Any], key: str, value: Any, word: str) -> None:
    *parents, last = key.split(".")
    node = values
    for part in parents:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{word}: '{part}' was given a plain value before")
    node[last] = value

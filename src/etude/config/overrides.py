"""The `key=value` words of a command line, in Hydra's grammar."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.config.layers import put
from etude.errors import ConfigError
from etude.files.documents import DEEPEST

# Groups that a `+group=name` or `group=name` word can choose a preset file from.
GROUPS = ("experiment", "algorithm", "environment", "network", "buffer", "robot")

# Settings that are one text with commas in it, where the grammar would see several runs.
_LISTS_AS_TEXT = "device"
"""What settings are called whose lists are text: one device for each process."""


@dataclass(frozen=True)
class Choice:
    """A word that chooses a preset file: `+experiment=ppo_cartpole`, `network@network.actor=mlp_256`."""

    word: str
    group: str
    name: str
    package: str | None = None


@dataclass(frozen=True)
class Overrides:
    """What the words of a command line ask for."""

    values: dict[str, Any] = field(default_factory=dict)
    """Dotted keys and their values, as one nested layer."""
    choices: tuple[Choice, ...] = ()
    """Choices of preset files, left to Hydra."""


def _without_equals(word: str) -> str:
    return "write it as key=value" + ("; what is trained, ENV:ALGO, comes before all settings" if ":" in word else "")


def parse(words: Sequence[str]) -> Overrides:
    """Read `algorithm.gamma=0.98`, `network.actor.hidden_dims=[64,64]`, `+experiment=ppo_cartpole` and the like."""
    if not words:
        return Overrides()
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    values: dict[str, Any] = {}
    choices: list[Choice] = []
    for word in words:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                override = parser.parse_override(word)
                value = None if override.is_sweep_override() or override.is_delete() else _plain(override.value())
        except RecursionError:
            raise ConfigError(f"{word[:60]}...: is nested too deeply") from None
        except (HydraException, ValueError):  # the latter for numbers of thousands of digits
            key, equals, _ = word.partition("=")
            hint = "quote values with special characters: 'key=\"a value\"'" if equals else _without_equals(word)
            raise ConfigError(f"{word if len(word) < 200 else f'{word[:200]}...'}: can't be read; {hint}") from None
        key = override.key_or_group
        if not key:
            raise ConfigError(f"{word}: can't be read; {_without_equals(word)}")
        if override.is_sweep_override() and key.rpartition(".")[2] == _LISTS_AS_TEXT:
            put(values, key, word.partition("=")[2])
            continue
        if override.is_sweep_override():
            raise ConfigError(f"{word}: several values in one run; a list is written {key}=[1,2]")
        if override.is_delete():
            raise ConfigError(f"{word}: settings can't be removed; set {key}=null where it may be empty")
        if override.type.name not in ("CHANGE", "ADD", "FORCE_ADD"):
            raise ConfigError(f"{word}: lists can't be extended; write the whole list, {key}=[1,2]")
        if key in GROUPS and isinstance(value, str):
            choices.append(Choice(word, key, value, override.package))
            continue
        if override.package is not None or "/" in key:
            raise ConfigError(f"{word}: no group '{key}' (groups: {', '.join(GROUPS)}); a setting is written section.key=value")
        try:
            put(values, key, value)
        except TypeError as problem:
            raise ConfigError(f"{word}: {problem} in another word") from None
    return Overrides(values, tuple(choices))


def _plain(value: Any, depth: int = 0) -> Any:
    from hydra.core.override_parser.types import QuotedString

    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value


def quote(text: str) -> str:
    """Return `text` as a value that the grammar reads back as the same text."""
    # A backslash counts only before a quote or at the end, where it has to be doubled.
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"

"""What a metric row holds and how its names are built, read and translated from other systems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

from etude.files.documents import parse_yaml

Row: TypeAlias = Mapping[str, float]
"""One moment of a run: the five counters and any number of ``<namespace>/<name>`` values."""

COUNTERS = ("decisions", "env_steps", "updates", "episodes", "cycles")

# What differs between two runs that learned exactly the same: the machine and its clock.
_MACHINE_NAMESPACES = ("time", "system")


def split(name: str) -> tuple[str, str]:
    """Return a metric's namespace and its name within it; a counter's namespace is empty."""
    namespace, slash, rest = name.partition("/")
    return (namespace, rest) if slash else ("", name)


def join(namespace: str, name: str) -> str:
    """Build a metric's full name; the reverse of `split`."""
    return f"{namespace}/{name}" if namespace else name


def deterministic_items(row: Row) -> dict[str, float]:
    """Return the part of a row that a reproduced run must repeat: all but ``time/`` and ``system/``."""
    return {name: value for name, value in row.items() if split(name)[0] not in _MACHINE_NAMESPACES}


def canonical(name: str) -> str:
    """Return our spelling of a metric that a reference system named; an unknown name stays as it is."""
    if name in (spellings := _spellings()):
        return spellings[name]
    namespace, rest = split(name)
    if namespace in _STAGES and (episode := re.fullmatch(r"roll/ep_(rew|len)/(\w+)", rest)):
        quantity = {"rew": "return", "len": "length"}[episode[1]]
        return f"{_STAGES[namespace]}/{quantity}_{episode[2]}"
    if match := re.fullmatch(r"(evaluation|training)/episode-(reward|length)-(mean|min|max|std)", name):
        stage = {"evaluation": "eval", "training": "collect"}[match[1]]
        quantity = {"reward": "return", "length": "length"}[match[2]]
        return f"{stage}/{quantity}_{match[3]}"
    if match := re.fullmatch(r"train/opt/grads/norm/(\w+)", name):
        return f"train/grad_norm_{match[1]}"
    if match := re.fullmatch(r"train/hp/(\w+)", name):
        return f"hp/{match[1]}"
    if namespace == "val":
        return f"eval/{rest}"
    return name


# gymnasium-solver's three stages. Its training episodes are what we call collected ones.
_STAGES = {"train": "collect", "val": "eval", "eval": "eval", "test": "test"}


@cache
def _spellings() -> dict[str, str]:
    return parse_yaml(Path(__file__).with_suffix(".yaml").read_bytes())

"""In which settings, code and packages groups of runs differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.comparison.groups import Group
    from etude.comparison.members import Member

_ABSENT = "–"
# Packages that take part in the numbers come first; the other differences are only counted on the terminal.
_TELLING = ("etude", "python", "torch", "numpy", "gymnasium", "mujoco", "Box2D", "ale-py", "dm_control")


@dataclass(frozen=True)
class Difference:
    """One setting, package or commit, and what each group has."""

    key: str
    values: tuple[str, ...]
    """One for each group; several values within a group stand beside each other."""


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all, in the order of the configs."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({_exact(each, key) for each in settings}) > 1]


def config_differences(groups: Sequence[Group]) -> list[Difference]:
    """Return every setting in which any two runs differ."""
    keys = differing_keys([member.settings for group in groups for member in group.members if member.settings])
    if "environment.id" in keys:  # another environment has another description; that says nothing new
        keys = [key for key in keys if not key.startswith("environment.spec.")]
    return [_difference(groups, key, lambda member, key=key: _setting(member, key)) for key in keys]


def code_differences(groups: Sequence[Group]) -> list[Difference]:
    """Return the commits of the runs if they differ, uncommitted changes included."""
    differ = len({_code(member) for group in groups for member in group.members}) > 1
    return [_difference(groups, "commit", _code)] if differ else []


def package_differences(groups: Sequence[Group]) -> list[Difference]:
    """Return the packages, and the Python, whose versions differ; those that compute come first."""
    keys = differing_keys([member.packages for group in groups for member in group.members if member.packages])
    keys.sort(key=lambda key: (_rank(key), key.lower()))
    return [_difference(groups, key, lambda m, key=key: m.packages.get(key, _ABSENT)) for key in keys]


def is_telling(package: str) -> bool:
    """Whether a package takes part in what a run computes."""
    return _rank(package) < len(_TELLING)


def shown(value: Any) -> str:
    """Return a setting as a user would write it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return json.dumps(value)


def _difference(groups: Sequence[Group], key: str, value_of: Callable[[Member], str]) -> Difference:
    cells = []
    for group in groups:
        values = list(dict.fromkeys(value_of(member) for member in group.members))
        cells.append(", ".join(values[:3]) + (f" and {len(values) - 3} more" if len(values) > 3 else ""))
    return Difference(key, tuple(cells))


def _setting(member: Member, key: str) -> str:
    return shown(member.settings[key]) if key in member.settings else _ABSENT


def _code(member: Member) -> str:
    if member.facts.commit is None:
        return "not known"
    return member.facts.commit[:9] + (" + changes" if member.dirty else "")


def _rank(package: str) -> int:
    lower = [name.lower() for name in _TELLING]
    return lower.index(package.lower()) if package.lower() in lower else len(lower)


def _exact(settings: Mapping[str, Any], key: str) -> str:
    # 1 and 1.0 are one value to a reader, True is another. A key that an older Etude lacked counts as not set.
    value = settings.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(float(value))
    return json.dumps(value, sort_keys=True, default=str)

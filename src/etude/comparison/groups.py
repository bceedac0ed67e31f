"""Which runs belong together, and what a reader calls them."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etude.comparison.config_diff import differing_keys, shown
from etude.comparison.members import Member
from etude.errors import UserError, did_you_mean

_MOST_KEYS_IN_A_LABEL = 3
# They follow from the budget or change nothing that is learned: poor names for a group of runs.
_POOR_LABELS = ("checkpoint.", "logging.", "evaluation.", "environment.spec.", "_resolved.")


@dataclass(frozen=True)
class Group:
    """Runs that are taken as seeds of one method, on one environment."""

    letter: str
    label: str
    method: str
    """The same for groups that differ in nothing but the environment."""
    environment: str
    members: tuple[Member, ...]

    @property
    def method_label(self) -> str:
        """The label without the environment."""
        return self.label.removesuffix(f" on {self.environment}")

    def strata(self) -> list[list[Member]]:
        """Return its runs by setup: only those differ by nothing but chance."""
        by_setup: dict[str, list[Member]] = {}
        for member in self.members:
            by_setup.setdefault(member.setup, []).append(member)
        return list(by_setup.values())


def make_groups(members: Sequence[Member], by: str | None = None) -> list[Group]:
    """Group runs by setup, or by `by`: group, name, algorithm, environment, run, or the name of a setting."""
    method_of = _method(members, by)
    # Ordered by seed, so that it does not matter in which order the runs were named.
    ordered = sorted(members, key=lambda member: (member.facts.seed is None, member.facts.seed or 0, member.id))
    first_seen: dict[tuple[str, str], int] = {}
    for position, member in enumerate(members):
        first_seen.setdefault((method_of(member), member.environment), position)
    keys = sorted(first_seen, key=lambda key: first_seen[key])
    parts = {key: tuple(m for m in ordered if (method_of(m), m.environment) == key) for key in keys}
    labels = _setup_labels(list(parts.values())) if by is None else _labels(keys)
    letters = _letters(len(keys))
    return [
        Group(letter, label, method, environment, parts[method, environment])
        for letter, label, (method, environment) in zip(letters, labels, keys, strict=True)
    ]


def _method(members: Sequence[Member], by: str | None) -> Callable[[Member], str]:
    ways: dict[str, Callable[[Member], str]] = {
        "setup": lambda member: member.setup,
        "run": lambda member: member.id,
        "name": lambda member: member.facts.name or "no name",
        "group": lambda member: member.facts.group or "no group",
        "algorithm": lambda member: member.algorithm,
        "environment": lambda member: member.environment,
        "seed": lambda member: f"seed {member.facts.seed}",
    }
    way = ways.get(by or "setup")
    if way is not None:
        return way
    assert by is not None
    known = sorted({key for member in members for key in member.settings})
    keys = [key for key in known if key == by] or [key for key in known if key.endswith(f".{by}")]
    if len(keys) > 1:
        raise UserError(f"--by {by}: could be {' or '.join(keys)}")
    if not keys:
        raise UserError(f"--by {by}: neither {', '.join(ways)} nor a setting of these runs{did_you_mean(by, [*ways, *known])}")
    key = keys[0]
    return lambda member: f"{key.rpartition('.')[2]}={shown(member.settings.get(key))}"


def _labels(keys: Sequence[tuple[str, str]]) -> list[str]:
    on_several = {method for method, count in Counter(method for method, _ in keys).items() if count > 1}
    return [f"{method} on {environment}" if method in on_several else method for method, environment in keys]


def _setup_labels(parts: Sequence[Sequence[Member]]) -> list[str]:
    """Call a setup by its environment and algorithm, and by the settings in which it differs from those of the same two."""
    bases = [f"{part[0].environment}:{part[0].algorithm}" for part in parts]
    counts = Counter(bases)
    labels = []
    for base, part in zip(bases, parts, strict=True):
        if counts[base] == 1:
            labels.append(base)
            continue
        same_base = [other[0].settings for other, its in zip(parts, bases, strict=True) if its == base]
        what = _in_a_few_words(part[0], same_base)
        labels.append(what if len(counts) == 1 else f"{base} {what}")
    twice = {label for label, count in Counter(labels).items() if count > 1}
    return [f"{label} ({part[0].setup[:6]})" if label in twice else label for label, part in zip(labels, parts, strict=True)]


def _in_a_few_words(member: Member, others: Sequence[dict[str, Any]]) -> str:
    keys = differing_keys(others)
    telling = [key for key in keys if not key.startswith(_POOR_LABELS)] or keys
    if len(telling) > _MOST_KEYS_IN_A_LABEL or not telling:
        return (member.facts.config.get("experiment.name") or member.facts.name or member.id).strip()
    leaves = [key.rpartition(".")[2] for key in telling]
    names = [leaf if leaves.count(leaf) == 1 else key for leaf, key in zip(leaves, telling, strict=True)]
    return ", ".join(f"{name}={shown(member.settings.get(key))}" for name, key in zip(names, telling, strict=True))


def _letters(count: int) -> list[str]:
    alphabet = string.ascii_uppercase
    return [(alphabet[n // 26 - 1] if n >= 26 else "") + alphabet[n % 26] for n in range(count)]

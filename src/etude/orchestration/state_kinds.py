"""Whether saved counts and flags are of the kind that they are loaded into: a stranger's checkpoint may hold anything."""

from __future__ import annotations

from collections.abc import Mapping


def check_kinds(saved: object, own: object, where: str) -> None:
    """Raise ValueError where a saved count or flag is something else than ours: it would fail only amid training.

    What only one of the two has is left to whoever loads it.
    """
    if isinstance(own, Mapping):
        if not isinstance(saved, Mapping):
            raise ValueError(f"{where}: {_kind(saved)} instead of a mapping")
        for key in saved.keys() & own.keys():
            check_kinds(saved[key], own[key], f"{where}.{key}")
    elif _kind(saved) != _kind(own):
        raise ValueError(f"{where}: {_kind(saved)} instead of {_kind(own)}")
    elif isinstance(saved, int | float) and not saved >= 0:
        raise ValueError(f"{where}: {saved} is not a count")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else "nothing" if value is None else type(value).__name__

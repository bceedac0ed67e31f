"""Options that are out of range, contradict each other, or would do nothing: each is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etude.errors import UserError


def at_least(least: float, **options: float | None) -> None:
    """Refuse a number below `least`; an option's name is written as in Python, `num_envs` for --num-envs."""
    for name, value in options.items():
        if value is not None and not value >= least:
            raise UserError(f"{_flag(name)} {value:g}: must be at least {least:g}")


def above_zero(**options: float | None) -> None:
    """Refuse a number that is not above 0."""
    for name, value in options.items():
        if value is not None and not value > 0:
            raise UserError(f"{_flag(name)} {value:g}: must be above 0")


def exclusive(options: Mapping[str, object]) -> None:
    """Refuse options that can't both hold: of those that are neither None nor False, at most one."""
    given = [name if value is True else f"{name} {value}" for name, value in options.items() if value not in (None, False)]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)}: choose one")


def said_once(flags: Mapping[str, str], words: Sequence[str]) -> None:
    """Refuse a setting that stands among the `key=value` words and is set by a flag too: {key: flag}."""
    named = {word.partition("=")[0].lstrip("+"): word for word in words}
    for key, flag in flags.items():
        if key in named:
            raise UserError(f"{flag} and {named[key]}: choose one")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

"""Options that are out of range, contradict each other, or would do nothing: each is refused in one line."""

from __future__ import annotations

import re
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


def seconds(option: str, text: str | None) -> float | None:
    """Read a time: 90, 90s, 30m, 2h or 1d."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([smhd]?)\s*", text)
    try:
        number = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]] if found else -1.0
    except ValueError:
        number = -1.0
    if number <= 0:
        raise UserError(f"{option} {text}: a time above 0, such as 90, 30m or 2h")
    return number


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

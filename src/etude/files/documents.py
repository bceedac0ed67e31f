"""Reads JSON and YAML that may be a stranger's, within limits; what is wrong with it is one line.

YAML itself is in `etude.files.yaml_text`, imported when it is needed: listing runs must not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from etude.files.regular import LARGEST_TEXT, read_bytes

DEEPEST = 64
MOST_VALUES = 20_000
"""Far more than any config has, aliases counted as often as they are used."""
LONGEST_NUMBER = 20
"""Digits of the largest whole number in 64 bits."""


class DocumentError(ValueError):
    """The text is not what it should be; the message is one line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem, self.line = problem, line

    def of(self, file: Path | str) -> str:
        """Say it of a file: `file:12: what is wrong`."""
        return f"{file}: {self.problem}" if self.line is None else f"{file}:{self.line}: {self.problem}"


class LimitError(DocumentError):
    """The text is well-formed as far as it was read, and goes past a limit there."""


def read_yaml(path: Path, most: int = LARGEST_TEXT) -> Any:
    """Return what a YAML file says: OSError where it can't be read, DocumentError where it is not valid YAML."""
    return parse_yaml(read_bytes(path, most))


def parse_yaml(text: bytes | str) -> Any:
    """Return what YAML text says, dates as text."""
    from etude.files import yaml_text

    return yaml_text.load(text)


def check_yaml(text: bytes | str) -> None:
    """Raise DocumentError if the text is no YAML, or goes past a limit."""
    from etude.files import yaml_text

    yaml_text.check(text)


def read_json(path: Path, most: int = LARGEST_TEXT, *, digits: int = LONGEST_NUMBER) -> Any:
    """Return what a JSON file says: OSError where it can't be read, DocumentError where it is not valid JSON."""
    return parse_json(read_bytes(path, most), digits=digits)


def parse_json(text: bytes | str, *, digits: int = LONGEST_NUMBER, deepest: int = DEEPEST) -> Any:
    """Return what JSON text says; whole numbers of more than `digits` digits and deeper nesting are refused."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = _json_decoder(digits).decode(text)
    except DocumentError:
        raise
    except json.JSONDecodeError as error:
        raise DocumentError(f"not JSON ({error.msg})", error.lineno) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]
        raise DocumentError(f"not JSON ({reason})") from None
    # Most text can't be too deep, which a count tells without a walk.
    if text.count("[") + text.count("{") > deepest and max(_depths(value), default=0) > deepest:
        raise DocumentError(f"nested more than {deepest} deep")
    return value


@cache
def _json_decoder(digits: int) -> json.JSONDecoder:
    def whole(number: str) -> int:
        if len(number.lstrip("-")) > digits:
            raise DocumentError(too_long(number))
        return int(number)

    return json.JSONDecoder(parse_int=whole)


def _depths(value: Any) -> Iterator[int]:
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict | list):
            yield depth
            waiting += [(part, depth + 1) for part in (item.values() if isinstance(item, dict) else item)]


def too_long(number: str) -> str:
    """Say what is wrong with a number that has too many digits."""
    return f"a whole number of {len(number):,} digits ({number[:12]}...)"

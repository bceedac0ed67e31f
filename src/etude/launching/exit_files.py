"""How tasks ended: each script writes the exit code of its task into a file named after its number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FOLDER = "exit"
_WORDS = {"0": "finished", "130": "interrupted", "143": "interrupted"}


def exit_states(launch: Path, count: int) -> dict[int, str]:
    """Return one word for each task by what its file says; a task without one is `gone`: it was ended before it could say."""
    codes = {}
    for number in range(count):
        try:
            codes[number] = (launch / FOLDER / str(number)).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return states_of(codes, count)


def states_of(codes: Mapping[int, str], count: int) -> dict[int, str]:
    """Return one word for each task by its exit code."""
    return {number: _word(codes.get(number, "")) for number in range(count)}


def _word(code: str) -> str:
    code = code.strip()[:8]
    return "gone" if not code else _WORDS.get(code, f"failed ({code})")

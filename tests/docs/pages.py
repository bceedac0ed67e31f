"""The documentation as data: its code blocks, its commands and its links."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_FENCE = re.compile(r"^```(\w+)?(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    title: str | None
    """The name of the file that it is, if it is one."""
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "bash" else []
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @property
    def is_script(self) -> bool:
        """Whether it is meant to be run as it stands."""
        return self.language == "python" and self.text.startswith("# run\n")


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(*match) for match in _FENCE.findall(page.read_text(encoding="utf-8"))]


def arguments(command: str) -> list[str]:
    """Return the words of a shell command, its comment left out."""
    return shlex.split(command, comments=True)


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))

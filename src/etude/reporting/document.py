"""What a report is made of, whether it is written as Markdown or as HTML: sections of a few kinds of blocks.

All text here is plain text as it was found, and may be a stranger's; whoever writes it out escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from etude.reporting.chart import Chart


class Mono(NamedTuple):
    """Text as a machine reads it: an id, a path, a command."""

    text: str


class Link(NamedTuple):
    """Text that leads to a file; the target is a relative path, not yet quoted."""

    text: str
    target: str


Inline = str | Mono | Link


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list; each item is a label and what there is to say."""

    items: Sequence[tuple[str, Inline]]


@dataclass(frozen=True)
class Table:
    """Rows of cells; columns named in `right` hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[Inline]]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Shares:
    """Parts of a whole, each between 0 and 1."""

    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Charts:
    """Curves, side by side."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Code:
    """Lines of a file or a shell."""

    text: str
    language: str = ""


class MediaFile(NamedTuple):
    """A video or a picture."""

    target: str
    caption: str
    is_video: bool


@dataclass(frozen=True)
class Media:
    """Videos and pictures, side by side."""

    files: Sequence[MediaFile]


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown when somebody asks for them."""

    title: str
    blocks: Sequence[Block]


Block = Paragraph | Bullets | Table | Shares | Charts | Code | Media | Folded


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lines: Sequence[tuple[str, Inline]]
    """What stands right below the title."""
    sections: Sequence[Section]

"""Plain text inside Markdown and HTML, where none of it may become markup."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

from etude.files.printable import printable, printable_line

_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&#$]")
_BEGINNING = re.compile(r"^(\s*\d*)([-+=.)])")
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=\bwww)(?=\.)")


def markdown(text: str) -> str:
    """Return text as one line of Markdown that shows exactly that text."""
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", printable_line(text))
    # Some readers make a link of any address; an empty comment in it keeps it text.
    return _ADDRESS.sub("<!-- -->", escaped)


def markdown_paragraph(text: str) -> str:
    """Return text as a line that stands alone, where a dash or a number would begin a list."""
    return _BEGINNING.sub(r"\1\\\2", markdown(text))


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Return text as a code span of Markdown."""
    line = printable_line(text)
    if not line:
        return ""
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    room = " " if line[0] == "`" or line[-1] == "`" or (line[0] == line[-1] == " ") else ""
    # A table is cut into cells before its code is looked at.
    shown = line.replace("|", "\\|") if in_table else line
    return f"{ticks}{room}{shown}{room}{ticks}"


def markdown_block(text: str, language: str = "") -> str:
    """Return lines as a fenced block of Markdown."""
    body = printable(text).rstrip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
    return f"{fence}{language}\n{body}\n{fence}"


def address(target: str) -> str:
    """Return a relative path as the address of a link; it never names a scheme or another machine."""
    # Colons are quoted, and slashes in front would name a machine.
    quoted = quote(target.encode("utf-8", "surrogateescape"), safe="/-_.~")
    return quoted if quoted.startswith("../") else f"./{quoted.lstrip('/').removeprefix('./')}"


def page(text: str) -> str:
    """Return text for HTML, within an element or an attribute."""
    return html.escape(printable_line(text))


def page_lines(text: str) -> str:
    """Return lines for an element of HTML that keeps them."""
    return html.escape(printable(text))

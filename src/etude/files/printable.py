"""Text from outside made safe for a terminal: names, values and messages that a stranger may have chosen."""

from __future__ import annotations

_KEPT = "\n\t"


def printable(text: str) -> str:
    """Return text whose control characters, escape sequences and half characters are spelled out, such as ``\\x1b``.

    What reverses the direction of writing or has no width is spelled out too: it makes a name look like another.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _KEPT else _spelled(letter) for letter in text)


def printable_line(text: str) -> str:
    """Return printable text whose line breaks and tabs are spelled out too: a cell of a table, a line of a list."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str, most: int = 200) -> str:
    """Return printable text on a single line, cut where it is long."""
    shown = printable(" ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")

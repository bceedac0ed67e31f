"""Names and messages from outside can't move a terminal's cursor or pass for something else (defect 9)."""

from __future__ import annotations

import pytest

from etude.files.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("größer · 1 m/s²", "größer · 1 m/s²"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("run\u202egnp.exe", "run\\u202egnp.exe"),
        ("half \ud800", "half \\ud800"),
        ("a\rb", r"a\rb"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_is_one_line() -> None:
    assert one_line("a\n b\t\x1bc") == r"a b \x1bc"
    assert len(one_line("x" * 1000)) == 200

"""Nothing that a stranger wrote becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from etude.reporting.document import Bullets, Code, Document, Folded, Link, Media, MediaFile, Mono, Paragraph, Section, Table
from etude.reporting.escaping import address, markdown, markdown_block, markdown_code
from etude.reporting.html import to_html
from etude.reporting.markdown import to_markdown

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "![x](https://evil.example/a.png)",
    "a | b\n| c | d |",
    "``` \n</details>\n# heading",
    "\x1b[31m\u202ered",
    "`code` ``more``",
    "javascript:alert(1)",
    "- a list",
    "# a heading",
    "===",
)


class Tags(HTMLParser):
    """Collects elements and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def document(text: str) -> Document:
    media = MediaFile(f"videos/{text}", text, True)
    blocks = [
        Paragraph(text), Bullets([(text, text), ("", Mono(text)), ("", Link(text, text))]),
        Table((text, "b"), [(text, Mono(text))]), Code(text, "yaml"), Media([media]), Folded(text, [Code(text)]),
    ]  # fmt: skip
    return Document(text, [(text, Mono(text))], [Section(text, blocks)])


def kind(line: str) -> str:
    """What a line of Markdown begins: a heading, a list, a table, an element, or text."""
    return line[0] if line and line[0] in "#-+=|<>`*" else "text"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_has_no_element_and_no_address_that_a_text_asked_for(text: str) -> None:
    page = to_html(document(text))
    parser = Tags()
    parser.feed(page)
    names = [tag for tag, _ in parser.tags]
    plain = Tags()
    plain.feed(to_html(document("plain")))
    assert names == [tag for tag, _ in plain.tags]
    for _, attributes in parser.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "./x").startswith(("./", "../", "#"))
        assert attributes.get("src", "./x").startswith(("./", "../"))
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_the_same_lines_whatever_a_text_holds(text: str) -> None:
    written, plain = to_markdown(document(text)), to_markdown(document("plain"))
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "CODE", written)
    expected = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "CODE", plain)
    assert len(outside.splitlines()) == len(expected.splitlines())
    assert [kind(line) for line in outside.splitlines()] == [kind(line) for line in expected.splitlines()]
    assert "<script" not in re.sub(r"`[^\n]*`", "", outside).replace("\\<", "")
    assert "<img" not in re.sub(r"`[^\n]*`", "", outside).replace("\\<", "")


def test_code_in_markdown_is_fenced_by_more_ticks_than_it_has() -> None:
    assert markdown_code("a`b") == "``a`b``"
    assert markdown_code("`a`") == "`` `a` ``"
    assert markdown_code("a|b", in_table=True) == "`a\\|b`"
    assert markdown_block("```\nx") == "````\n```\nx\n````"


def test_addresses_are_relative_and_quoted() -> None:
    assert address("videos/a b#1.mp4") == "./videos/a%20b%231.mp4"
    assert address("//evil.example/x") == "./evil.example/x"
    assert address("javascript:alert(1)") == "./javascript%3Aalert%281%29"
    assert address("../runs/x/report.html") == "../runs/x/report.html"


def test_an_address_in_a_text_is_no_link() -> None:
    assert "https://" not in markdown("see https://evil.example")
    assert "www." not in markdown("www.evil.example")

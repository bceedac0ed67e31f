"""A report as Markdown: readable as it is, in an editor, in a terminal and on a forge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from etude.files.printable import printable_line
from etude.reporting.chart import Chart, Line
from etude.reporting.document import (
    Block,
    Bullets,
    Charts,
    Code,
    Document,
    Folded,
    Inline,
    Link,
    Media,
    Mono,
    Paragraph,
    Shares,
    Table,
)
from etude.reporting.escaping import address, markdown, markdown_block, markdown_code, markdown_paragraph, page
from etude.telemetry.readable import number
from etude.telemetry.sparkline import sparkline

_CURVE = 40
_BAR = 20


def to_markdown(document: Document) -> str:
    """Return the whole text."""
    parts = [f"# {markdown(document.title)}", _bullets(document.lines)]
    for section in document.sections:
        parts.append(f"## {markdown(section.title)}")
        parts += [text for block in section.blocks for text in _block(block)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield markdown_paragraph(text)
        case Bullets(items):
            yield _bullets(items)
        case Table(head, rows, right):
            yield _table(head, rows, right)
        case Shares(parts):
            rows = [(name, f"{share:.1%}", Mono("█" * max(1, round(share * _BAR)))) for name, share in parts]
            yield _table(("part", "share", ""), rows, frozenset({1}))
        case Charts(charts):
            rows = [_curve(chart, line) for chart in charts for line in chart.lines]
            yield _table(("curve", "first", "last", "lowest", "highest", "over time"), rows, frozenset({1, 2, 3, 4}))
        case Code(text, language):
            yield markdown_block(text, language)
        case Media(files):
            yield "\n".join(f"- [{markdown(file.caption)}](<{address(file.target)}>)" for file in files)
        case Folded(title, blocks):
            yield f"<details>\n<summary>{page(title)}</summary>"
            for inner in blocks:
                yield from _block(inner)
            yield "</details>"


def _inline(text: Inline, *, in_table: bool = False) -> str:
    match text:
        case Mono(plain):
            return markdown_code(plain, in_table=in_table)
        case Link(plain, target):
            return f"[{markdown(plain)}](<{address(target)}>)"
        case _:
            return markdown(text)


def _bullets(items: Sequence[tuple[str, Inline]]) -> str:
    return "\n".join(f"- {f'**{markdown(label)}**: ' if label else ''}{_inline(text)}" for label, text in items)


def _table(head: Sequence[str], rows: Sequence[Sequence[Inline]], right: frozenset[int]) -> str:
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    lines = [[markdown(name) for name in head], rule, *([_inline(cell, in_table=True) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _curve(chart: Chart, line: Line) -> Sequence[Inline]:
    name = chart.title if len(chart.lines) == 1 else f"{printable_line(chart.title)}: {line.label}"
    finite = line.y[np.isfinite(line.y)]
    if not len(finite):
        return (name, *["-"] * 4, "")
    ends = (finite[0], finite[-1], finite.min(), finite.max())
    drawn = sparkline([float(value) if math.isfinite(value) else math.nan for value in line.y], _CURVE)
    return (name, *(number(float(value)) for value in ends), Mono(drawn))

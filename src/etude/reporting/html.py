"""A report as a page that stands alone: style and pictures are in it, nothing is fetched, no script runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from etude.reporting.chart import COLOURS, Chart, legend, svg
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
    MediaFile,
    Mono,
    Paragraph,
    Shares,
    Table,
)
from etude.reporting.escaping import address, page, page_lines

# Should anything of a stranger's ever become markup in spite of the escaping, it still can't run or call home.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' file:; media-src 'self' file:"


def to_html(document: Document) -> str:
    """Return the whole page."""
    style = (files("etude.reporting") / "report.css").read_text(encoding="utf-8")
    title = page(document.title)
    places = [(f"part-{number}", section) for number, section in enumerate(document.sections, start=1)]
    contents = "".join(f'<a href="#{place}">{page(section.title)}</a>' for place, section in places)
    body = "".join(
        f'<section id="{place}"><h2>{page(section.title)}</h2>{"".join(map(_shown, section.blocks))}</section>\n'
        for place, section in places
    )
    lines = "".join(f"<div><dt>{page(label)}</dt><dd>{_inline(text)}</dd></div>" for label, text in document.lines)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<header><h1>{title}</h1><dl>{lines}</dl></header>\n"
        f"<nav>{contents}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _shown(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{page(text)}</p>"
        case Bullets(items):
            listed = "".join(f"<li>{f'<b>{page(label)}</b> ' if label else ''}{_inline(text)}</li>" for label, text in items)
            return f"<ul>{listed}</ul>"
        case Table(head, rows, right):
            return _table(head, rows, right)
        case Shares(parts):
            return f'<div class="shares">{"".join(_share(name, share) for name, share in parts)}</div>'
        case Charts(charts):
            return f'<div class="charts">{"".join(map(_chart, charts))}</div>'
        case Code(text):
            return f"<pre><code>{page_lines(text)}</code></pre>"
        case Media(shown):
            return f'<div class="media">{"".join(map(_medium, shown))}</div>'
        case Folded(title, blocks):
            return f"<details><summary>{page(title)}</summary>{''.join(map(_shown, blocks))}</details>"


def _inline(text: Inline) -> str:
    match text:
        case Mono(plain):
            return f"<code>{page(plain)}</code>"
        case Link(plain, target):
            return f'<a href="{page(address(target))}">{page(plain)}</a>'
        case _:
            return page(text)


def _table(head: Sequence[str], rows: Sequence[Sequence[Inline]], right: frozenset[int]) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="n"' if column in right else "" for column in range(len(cells))]
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in zip(kinds, cells, strict=True))}</tr>"

    below = "".join(row("td", [_inline(cell) for cell in cells]) for cells in rows)
    return f'<div class="scroll"><table><thead>{row("th", [page(n) for n in head])}</thead><tbody>{below}</tbody></table></div>'


def _share(name: str, share: float) -> str:
    width = f"{100 * min(1.0, max(0.0, share)):.2f}%"
    return f'<div><span>{page(name)}</span><i><b style="width:{width}"></b></i><span class="n">{share:.1%}</span></div>'


def _chart(chart: Chart) -> str:
    keys = "".join(f'<span><i class="{_key(number)}"></i>{page(label)}</span>' for number, label in legend(chart))
    note = f"<small>{page(chart.note)}</small>" if chart.note else ""
    below = f'<div class="key">{keys}{note}</div>' if keys or note else ""
    title = f"<figcaption>{page(chart.title)}</figcaption>"
    if not chart.is_wide:
        return f"<figure>{title}{svg(chart)}{below}</figure>"
    # Drawn for each width: letters and lines of one picture can't suit both.
    drawn = f'<div class="on-wide">{svg(chart, is_wide=True)}</div><div class="on-narrow">{svg(chart)}</div>'
    return f'<figure class="wide">{title}{drawn}{below}</figure>'


def _key(number: int) -> str:
    return f"c{number % COLOURS}" + (" dashed" if number >= COLOURS else "")


def _medium(file: MediaFile) -> str:
    target = page(address(file.target))
    shown = (
        f'<video controls preload="metadata" src="{target}"></video>'
        if file.is_video
        else f'<img loading="lazy" src="{target}" alt="{page(file.caption)}">'
    )
    return f'<figure>{shown}<figcaption><a href="{target}">{page(file.caption)}</a></figcaption></figure>'

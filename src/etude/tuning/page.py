"""A sweep's report as one HTML file that stands alone: tables, and pictures inside of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #f6f6f4; padding: .8rem 1rem; overflow-x: auto; font-size: 13px; }
img { max-width: 100%; height: auto; }
h2 { margin-top: 2rem; font-size: 1.1rem; }
"""


def page(title: str, lines: Sequence[str], pictures: Mapping[str, bytes], files: Mapping[str, str]) -> str:
    """Return the page: text, then pictures by their titles, then config files by their names."""
    parts = [f"<h1>{escape(title)}</h1>", f"<pre>{escape(chr(10).join(lines))}</pre>"]
    for name, picture in pictures.items():
        source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        parts.append(f'<h2>{escape(name)}</h2>\n<img alt="{escape(name)}" src="{source}">')
    for name, text in files.items():
        parts.append(f"<h2>{escape(name)}</h2>\n<pre>{escape(text)}</pre>")
    meta = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_CSS}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{meta}</head>\n<body>\n{chr(10).join(parts)}\n</body></html>\n'

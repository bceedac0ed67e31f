"""A comparison as a page that stands alone: one HTML file with its curves, tables, style and script."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from etude.comparison.curves import Band
from etude.comparison.notes import notes
from etude.comparison.plot import PALETTE, caption
from etude.comparison.report import axis_title, report
from etude.comparison.results import Comparison
from etude.comparison.text import seeds, steps, wall_time

_MACHINE = ("time/", "system/")
_PARTS = ("page.html", "page.css", "page.js")
_DASHES = ("", "8 3", "2 2", "8 3 2 3")


def page(comparison: Comparison, *, every_metric: bool) -> str:
    """Return the page; with `every_metric` its picker has all metrics of the runs, those of the comparison first."""
    first = comparison.metrics
    if every_metric:
        known = sorted({name for member in comparison.members for name in member.metrics if not name.startswith(_MACHINE)})
        comparison = comparison.with_metrics([*first, *(name for name in known if name not in first)])
    title = " and ".join(sorted({group.environment for group in comparison.groups}))
    parts = {name: (files("etude.comparison") / name).read_text(encoding="utf-8") for name in _PARTS}
    # A name may hold `</script>`; with its `<` escaped it is the same JSON and no end of the script.
    data = json.dumps(_data(comparison), separators=(",", ":")).replace("<", "\\u003c")
    filled = {
        "TITLE": escape(f"Runs on {title}"),
        "STYLE": parts["page.css"],
        "SCRIPT": parts["page.js"],
        "DATA": data,
    }
    # In one pass: what is filled in is never searched for places again.
    return re.sub(r"<!-- ([A-Z]+) -->", lambda place: filled[place[1]], parts["page.html"])


def _data(comparison: Comparison) -> dict[str, Any]:
    found = report(comparison)
    return {
        "axis": axis_title(comparison.axis),
        "caption": caption(comparison),
        "smooth": comparison.smooth,
        "metrics": comparison.metrics,
        "groups": [
            {
                "letter": group.letter,
                "label": group.label,
                "colour": PALETTE[position % len(PALETTE)],
                "dashes": _DASHES[position // len(PALETTE) % len(_DASHES)],
                "runs": len(group.members),
                "seeds": seeds(group),
                "steps": steps(group),
                "time": wall_time(group),
            }
            for position, group in enumerate(comparison.groups)
        ],
        "curves": {
            metric: [_curve(comparison.band(group, metric)) for group in comparison.groups] for metric in comparison.metrics
        },
        "results": found["results"],
        "improvements": found["improvements"],
        "settings": found["settings"],
        "notes": notes(comparison),
    }


def _curve(band: Band) -> dict[str, list[float | None]]:
    # Six digits are more than any screen shows; all sixteen would make the page three times as large.
    rows = {name: _short(getattr(band, name)) for name in ("x", "value", "low", "high")}
    return {**rows, "runs": [int(count) for count in band.runs]}


def _short(values: Iterable[float]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]

"""A comparison as a page that stands alone: one HTML file with its curves, tables, style and script."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from etude.comparison.curves import POINTS, Band, Curve
from etude.comparison.group_styles import styles
from etude.comparison.notes import notes
from etude.comparison.plot import caption
from etude.comparison.report import axis_title, report
from etude.comparison.results import Comparison
from etude.comparison.text import seeds, steps, wall_time

_MACHINE = ("time/", "system/")
_PARTS = ("page.html", "page.css", "page.js")
_MOST_POINTS = 400_000
"""Of the curves of single runs, all together: a page of ten megabytes is slow to open."""


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
    methods = list(dict.fromkeys(group.method for group in comparison.groups))
    points = max(20, min(POINTS, _MOST_POINTS // (len(comparison.members) * len(comparison.metrics))))
    return {
        "axis": axis_title(comparison.axis),
        "caption": caption(comparison),
        "smooth": comparison.smooth,
        "metrics": comparison.metrics,
        "environments": comparison.environments,
        "groups": [
            {
                "letter": group.letter,
                "label": group.label,
                "method": methods.index(group.method),
                "method_label": group.method_label,
                "environment": group.environment,
                "colour": look.colour,
                "dashes": " ".join(f"{length:g}" for length in look.dashes),
                "runs": len(group.members),
                "seeds": seeds(group),
                "steps": steps(group),
                "time": wall_time(group),
            }
            for group, look in zip(comparison.groups, styles(comparison.groups), strict=True)
        ],
        "runs": [
            {
                "group": group.letter,
                "id": member.id,
                "seed": member.facts.seed,
                "status": member.facts.status,
                "env_steps": member.facts.env_steps,
            }
            for group in comparison.groups
            for member in group.members
        ],
        "curves": {
            metric: [
                {
                    **_curve(comparison.band(group, metric)),
                    # A group of one run is that run.
                    "seeds": [
                        {"id": member.id, **_seed(comparison.line(member, metric), points)}
                        for member in group.members
                        if len(group.members) > 1
                    ],
                }
                for group in comparison.groups
            ]
            for metric in comparison.metrics
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


def _seed(line: Curve, points: int) -> dict[str, list[float | None]]:
    if len(line.x) > points:
        x = np.linspace(line.x[0], line.x[-1], points)
        line = Curve(x, np.interp(x, line.x, line.y))
    return {"x": _short(line.x), "value": _short(line.y)}


def _short(values: Iterable[float]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]

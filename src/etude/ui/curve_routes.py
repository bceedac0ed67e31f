"""Routes of curves: which metrics there are, and the lines of one of them."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from etude.comparison.members import Member
from etude.runs.indexed_run import IndexedRun
from etude.ui import curve_data
from etude.ui.answers import json_answer, tagged
from etude.ui.run_routes import limit
from etude.ui.run_table import chosen_runs
from etude.ui.workspace import Workspace, workspace_of

MOST_RUNS = 300
_MOST_POINTS = 4000
_MOST_NUMBERS = 240_000
"""Points of all lines of an answer together: more than a screen has."""
_KEPT_MEMBERS = 1000


def routes() -> list[BaseRoute]:
    """Return the routes."""
    members = _Members()

    def curves(request: Request) -> Response:
        return _curves(request, members)

    return [Route("/api/metrics", _metrics, methods=["GET"]), Route("/api/curves", curves, methods=["GET"])]


def _metrics(request: Request) -> Response:
    """Answer with the metrics of the chosen runs, and how many runs have each."""
    workspace = workspace_of(request)
    runs = _chosen(request, workspace)
    counts: dict[str, int] = {}
    for run in runs:
        # The last rows name nearly all of them; what is in memory already names the rest.
        for name in {*(name for name in run.metrics if "/" in name), *workspace.metrics.of(run.path).names}:
            counts[name] = counts.get(name, 0) + 1
    ordered = sorted(counts, key=lambda name: (not name.startswith("eval/"), not name.startswith("collect/"), name))[:1000]
    environments = sorted({run.environment or "?" for run in runs})
    answer = {"metrics": [{"name": name, "runs": counts[name]} for name in ordered], "environments": environments}
    return json_answer(request, {**answer, "runs": len(runs), "running": any(run.status == "running" for run in runs)})


def _curves(request: Request, known: _Members) -> Response:
    workspace = workspace_of(request)
    runs = _chosen(request, workspace)
    asked = _asked(request, len(runs))
    files = [workspace.metrics.of(run.path) for run in runs]
    pending = workspace.metrics.read(files)
    # What is drawn follows from these alone: while none changes, nothing is drawn again.
    looks = [(run.id, run.status, run.group, run.name, file.version) for run, file in zip(runs, files, strict=True)]
    tag = hashlib.sha256(repr((asked, looks, pending)).encode()).hexdigest()[:24]
    if request.headers.get("if-none-match") == f'"{tag}"':
        return Response(status_code=304, headers={"etag": f'"{tag}"'})
    drawing = curve_data.draw([known.of(run) for run in runs], files, asked)
    running = any(run.status == "running" for run in runs)
    body = drawing.encoded(pending=pending, running=running, runs=len(runs))
    return tagged(request, body, "application/octet-stream", tag)


def _chosen(request: Request, workspace: Workspace) -> list[IndexedRun]:
    """Return the runs named by `run`, or those that meet `filter`: the newest, at most MOST_RUNS."""
    everything = workspace.runs().runs
    named = request.query_params.getlist("run")
    if named:
        by_id = {run.id: run for run in everything}
        return [by_id[run_id] for run_id in dict.fromkeys(named[:MOST_RUNS]) if run_id in by_id]
    return chosen_runs(everything, request.query_params.get("filter", ""))[:MOST_RUNS]


def _asked(request: Request, runs: int) -> curve_data.Request:
    words = request.query_params
    metric, axis, band = words.get("metric", ""), words.get("axis", "env_steps"), words.get("band", "range")
    if not metric or len(metric) > 300:
        raise HTTPException(400, "metric: which?")
    if axis not in curve_data.AXES:
        raise HTTPException(400, f"axis: one of {', '.join(curve_data.AXES)}")
    if band not in curve_data.BANDS:
        raise HTTPException(400, f"band: one of {', '.join(curve_data.BANDS)}")
    smooth = _number(request, "smooth") or 0.0
    if not 0 <= smooth <= 1:
        raise HTTPException(400, "smooth: from 0 to 1")
    return curve_data.Request(
        metric=metric,
        axis=axis,
        by=words.get("by", "")[:200] or None,
        band=band,
        smooth=smooth,
        points=max(20, min(limit(request, "points", 600, _MOST_POINTS), _MOST_NUMBERS // max(1, runs))),
        start=_number(request, "start"),
        end=_number(request, "end"),
    )


def _number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise HTTPException(400, f"{name}: not a number")
    return number


class _Members:
    """Runs as groups are made of them; what they are told apart by is computed once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Sequence[object], Member] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: IndexedRun) -> Member:
        key = (run.path, run.config_hash, run.group, run.name, run.status, len(run.config))
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = Member(run, rows=())
            self._known.move_to_end(key)
            while len(self._known) > _KEPT_MEMBERS:
                self._known.popitem(last=False)
            return found

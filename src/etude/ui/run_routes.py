"""Routes of the run table and of changes to a run's tags and group."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from etude.errors import UserError
from etude.runs.run import Run
from etude.ui.answers import field, json_answer, json_body
from etude.ui.run_table import chosen_runs, known_keys, table
from etude.ui.workspace import workspace_of

_MOST_RUNS = 2000
_LONGEST_TAG = 80
_MOST_TAGS = 50


def routes() -> list[BaseRoute]:
    """Return the routes."""
    return [
        Route("/api/runs", _runs, methods=["GET"]),
        Route("/api/keys", _keys, methods=["GET"]),
        Route("/api/run/{run}/tags", _tags, methods=["POST"]),
        Route("/api/run/{run}/group", _group, methods=["POST"]),
    ]


def _runs(request: Request) -> Response:
    listing = workspace_of(request).runs()
    words = request.query_params
    found = chosen_runs(listing.runs, words.get("filter", ""), words.get("sort") or None, reverse=words.get("reverse") == "1")
    shown = found[: limit(request, "limit", 500, _MOST_RUNS)]
    rows = table(shown, listing.runs, words.getlist("column"))
    counts = {"total": len(listing.runs), "found": len(found), "running": sum(run.status == "running" for run in listing.runs)}
    groups = sorted({run.group for run in listing.runs if run.group})[:500]
    tags = sorted({tag for run in listing.runs for tag in run.tags})[:500]
    problems = [problem[:300] for problem in listing.problems[:20]]
    return json_answer(request, {"runs": rows, **counts, "groups": groups, "tags": tags, "problems": problems})


def _keys(request: Request) -> Response:
    return json_answer(request, known_keys(workspace_of(request).runs().runs))


async def _tags(request: Request) -> Response:
    run = run_of(request)
    body = await json_body(request)
    add, remove = (field(body, name, list, [], longest=_MOST_TAGS) for name in ("add", "remove"))
    if not all(isinstance(tag, str) and len(tag) <= _LONGEST_TAG for tag in (*add, *remove)):
        raise UserError(f"a tag is a text of at most {_LONGEST_TAG} letters")
    if not all(tag.isprintable() for tag in add):
        raise UserError("a tag must have nothing that can't be printed")
    if len({*(run.record.get("tags") or ()), *add}) > _MOST_TAGS:
        raise UserError(f"a run has at most {_MOST_TAGS} tags")
    tags = await run_in_threadpool(run.edit_tags, add, remove)
    workspace_of(request).changed()
    return JSONResponse({"tags": tags})


async def _group(request: Request) -> Response:
    run = run_of(request)
    group = field(await json_body(request), "group", str, longest=_LONGEST_TAG)
    await run_in_threadpool(run.edit_group, group or None)
    workspace_of(request).changed()
    return JSONResponse({"group": run.record.get("group")})


def run_of(request: Request) -> Run:
    """Return the run that a path names; 404 where there is none."""
    return Run(workspace_of(request).run_directory(request.path_params["run"]))


def limit(request: Request, name: str, default: int, most: int) -> int:
    """Return a count in the query; 400 where it is none."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(400, f"{name}: not a number")
    return min(int(text), most)

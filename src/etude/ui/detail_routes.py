"""Routes of one run's page, its files, and what differs between runs."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from etude.comparison.config_diff import Difference, code_differences, config_differences, package_differences
from etude.comparison.groups import make_groups
from etude.comparison.members import read_member
from etude.ui.answers import json_answer
from etude.ui.run_files import log_end, medium, report
from etude.ui.run_page import run_page
from etude.ui.run_routes import run_of
from etude.ui.workspace import workspace_of

_MOST_COMPARED = 40
_MOST_DIFFERENCES = 500


def routes() -> list[BaseRoute]:
    """Return the routes."""
    return [
        Route("/api/run/{run}", _run, methods=["GET"]),
        Route("/api/diff", _diff, methods=["GET"]),
        Route("/files/{run}/log", _log, methods=["GET"]),
        Route("/files/{run}/report", _report, methods=["GET"]),
        Route("/files/{run}/{folder}/{name}", _medium, methods=["GET"]),
    ]


def _run(request: Request) -> Response:
    return json_answer(request, run_page(run_of(request)))


def _log(request: Request) -> Response:
    return log_end(run_of(request).path)


def _report(request: Request) -> Response:
    return report(run_of(request).path)


def _medium(request: Request) -> Response:
    return medium(request, run_of(request).path, request.path_params["folder"], request.path_params["name"])


def _diff(request: Request) -> Response:
    """Answer with the settings, packages and code in which the named runs differ."""
    named = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(named) <= _MOST_COMPARED:
        raise HTTPException(400, f"name 2 to {_MOST_COMPARED} runs")
    workspace = workspace_of(request)
    members = [read_member(workspace.run_directory(run), reader=None) for run in named]
    groups = make_groups(members, "run")
    by_run = {group.members[0].id: number for number, group in enumerate(groups)}
    order = [by_run[member.id] for member in members]

    def shown(differences: list[Difference]) -> list[dict[str, Any]]:
        chosen = differences[:_MOST_DIFFERENCES]
        return [{"key": each.key[:300], "values": [each.values[place][:500] for place in order]} for each in chosen]

    facts = [{"id": m.id, "environment": m.environment, "algorithm": m.algorithm, "seed": m.facts.seed} for m in members]
    answer = {"settings": shown(config_differences(groups)), "code": shown(code_differences(groups))}
    return json_answer(request, {"runs": facts, **answer, "packages": shown(package_differences(groups))})

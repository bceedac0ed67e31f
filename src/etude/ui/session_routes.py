"""Who is there: what the server is, and the cookie by which images and videos are read where reading needs the token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from etude import __version__
from etude.ui.answers import json_answer
from etude.ui.workspace import workspace_of


def routes() -> list[BaseRoute]:
    """Return the routes."""
    return [
        Route("/api/about", _about, methods=["GET"]),
        Route("/api/session", _session, methods=["POST"]),
    ]


async def _about(request: Request) -> Response:
    workspace = workspace_of(request)
    return json_answer(request, {"version": __version__, "runs_dir": str(workspace.root)})


async def _session(request: Request) -> Response:
    """Answer whoever has the token, which the guard has checked, with the cookie for reading."""
    answer = JSONResponse({"ok": True})
    access = workspace_of(request).access
    answer.set_cookie(access.cookie_name, access.read_cookie(), httponly=True, samesite="strict")
    return answer

"""The app's pages: HTML frames without anything of a run in them, and the files that fill them in the browser."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from etude.ui.answers import tagged

STATIC = Path(__file__).parent / "static"


def page(path: str, file: str) -> Route:
    """Return the route of a page: `file` of static/, the same for every run; its script asks for what it shows."""

    async def answer(request: Request) -> Response:
        return tagged(request, (STATIC / file).read_bytes(), "text/html; charset=utf-8")

    return Route(path, answer, methods=["GET"], name=f"page:{file}")


def static_files() -> BaseRoute:
    """Return the route of scripts, styles and pictures of the app itself."""
    return Mount("/static", StaticFiles(directory=STATIC))

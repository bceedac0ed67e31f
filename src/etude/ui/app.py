"""The web app of a folder of runs: `make_app` puts routes behind the guard.

To add routes, write a module with `routes() -> list[BaseRoute]` and name it in `_ROUTES`, below. Every route is guarded without
doing anything (`guard.py`): who may ask, size limits, security headers. What remains to a route:

- GET only reads. Whatever changes something is a POST; the guard has then checked the token and the origin. Its body is
  `await json_body(request)`, a JSON object, and its fields are read by `field` (`answers.py`).
- A run's folder is `workspace_of(request).run_directory(request.path_params["run"])`: 404 for anything that is no run here.
  Files in it are opened by `confined.open_below`, which follows no link.
- Answer with `json_answer(request, value)` (entity tags: polling costs nothing while nothing changes). A wrong request raises
  an EtudeError or starlette's HTTPException; both become {"error": one line}.
- A handler that reads files or computes is `def`, not `async def`: it then runs in a thread.

To add a page, write static/NAME.html beside static/runs.html (its head is the shared layout: /static/app.css, then one
`<script type="module" src="/static/NAME.js">`, no inline script or style) and return `page("/NAME", "NAME.html")` among the
routes. Its script begins with

    import { startPage } from "./layout.js";   // header, navigation, theme; takes the token from the start address
    import { getJson, postJson } from "./api.js";   // requests with the token; errors as exceptions with one line

and shows text by `textContent` alone: HTML from text is refused by the content policy (trusted types).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from etude.errors import EtudeError
from etude.ui.access import Access, new_token
from etude.ui.answers import on_http_error, on_user_error
from etude.ui.guard import Guard
from etude.ui.pages import page, static_files
from etude.ui.workspace import Workspace

_ROUTES = (
    "etude.ui.session_routes",
    "etude.ui.inspector_routes",
    "etude.ui.run_routes",
    "etude.ui.detail_routes",
    "etude.ui.curve_routes",
    "etude.ui.control_routes",
)
_PAGES = (
    ("/", "runs.html"),
    ("/curves", "curves.html"),
    ("/run", "run.html"),
    ("/diff", "diff.html"),
    ("/start", "start.html"),
)


def make_app(runs_dir: Path, *, token: str | None = None, host: str = "127.0.0.1") -> Starlette:
    """Return the app for the runs in `runs_dir`; the address that it listens on, `host`, decides what needs the token."""
    routes: list[BaseRoute] = [page(path, file) for path, file in _PAGES]
    for module in _ROUTES:
        make: Callable[[], Sequence[BaseRoute]] = import_module(module).routes
        routes += make()
    pages = frozenset(route.path for route in routes if isinstance(route, Route) and route.name.startswith("page:"))
    access = Access(token or new_token(), host, pages)
    app = Starlette(
        routes=[*routes, static_files()],
        middleware=[Middleware(Guard, access)],
        exception_handlers={EtudeError: on_user_error, HTTPException: on_http_error},
    )
    app.state.workspace = Workspace(runs_dir, access)
    return app

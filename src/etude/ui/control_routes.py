"""Routes that start, stop and resume trainings."""

from __future__ import annotations

import shlex

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from etude import control
from etude.errors import UserError
from etude.ui.answers import field, json_answer, json_body
from etude.ui.control_jobs import ControlJobs
from etude.ui.run_routes import run_of
from etude.ui.workspace import workspace_of

_LONGEST_COMMAND = 4000
_MOST_WORDS = 100


def routes() -> list[BaseRoute]:
    """Return the routes."""
    jobs = ControlJobs()

    async def start(request: Request) -> Response:
        body = await json_body(request)
        words = _words(field(body, "words", str, "", longest=_LONGEST_COMMAND))
        if not words:
            raise UserError("what to train? such as CartPole-v1:ppo")
        root = workspace_of(request).root
        job = jobs.begin(f"train {shlex.join(words)}", lambda: control.start(words, root))
        return JSONResponse(job.facts(), status_code=202)

    async def resume(request: Request) -> Response:
        run = run_of(request)
        words = _words(field(await json_body(request), "words", str, "", longest=_LONGEST_COMMAND))
        what = " ".join(["resume", run.id, shlex.join(words)]).strip()
        job = jobs.begin(what, lambda: control.resume(run, words))
        return JSONResponse(job.facts(), status_code=202)

    async def stop(request: Request) -> Response:
        run = run_of(request)
        await run_in_threadpool(control.stop, run)
        return JSONResponse({"run": run.id, "asked": "stop"}, status_code=202)

    async def standing(request: Request) -> Response:
        return json_answer(request, {"jobs": jobs.all()})

    return [
        Route("/api/jobs", standing, methods=["GET"]),
        Route("/api/start", start, methods=["POST"]),
        Route("/api/run/{run}/resume", resume, methods=["POST"]),
        Route("/api/run/{run}/stop", stop, methods=["POST"]),
    ]


def _words(line: str) -> list[str]:
    """Return the words of a line as a shell would, without any of its powers."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"settings: {str(error).lower()}") from None
    if len(words) > _MOST_WORDS:
        raise UserError(f"settings: at most {_MOST_WORDS}")
    return words

"""The inspector: episodes recorded on the server, and their steps, pictures and other futures as a page asks for them.

PyTorch is imported when the first inspection is opened, not before: looking at runs needs none of it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from etude.files.atomic import standard_json
from etude.ui.answers import field, json_answer, json_body, tagged
from etude.ui.pages import page
from etude.ui.workspace import workspace_of

if TYPE_CHECKING:
    from etude.inspecting.desk import Desk, Session
    from etude.inspecting.recording import Recording

MOST_STEPS = 10_000
USUAL_STEPS = 1000
MOST_STEERED = 100
"""Steps of a drive that one request may ask for."""
_MODES = ("auto", "greedy", "sample")
_SESSION = "/api/inspect/{session}"
_RECORDING = "/api/inspect/{session}/{recording:int}"


def routes() -> list[BaseRoute]:
    """Return the page and what it asks for."""
    return [
        page("/inspect", "inspector.html"),
        Route("/api/inspect", _open, methods=["POST"]),
        Route(_SESSION, _status, methods=["GET"]),
        Route(_SESSION + "/facts", _facts, methods=["GET"]),
        Route(_SESSION + "/world", _world, methods=["GET"]),
        Route(_SESSION + "/stop", _stop, methods=["POST"]),
        Route(_SESSION + "/close", _close, methods=["POST"]),
        Route(_RECORDING + "/branch", _branch, methods=["POST"]),
        Route(_RECORDING + "/more", _more, methods=["POST"]),
        Route(_RECORDING + "/drive", _drive, methods=["POST"]),
        Route(_RECORDING + "/steer", _steer, methods=["POST"]),
        Route(_RECORDING + "/poses", _poses, methods=["GET"]),
        Route(_RECORDING + "/steps", _steps, methods=["GET"]),
        Route(_RECORDING + "/{kind}/{step:int}.png", _picture, methods=["GET"]),
        Route(_RECORDING + "/episode.{kind}", _export, methods=["GET"]),
    ]


# ---- inspections ------------------------------------------------------------------------------------------------------


async def _open(request: Request) -> Response:
    body = await json_body(request)
    run = workspace_of(request).run_directory(field(body, "run", str, ""))
    mode = field(body, "mode", str, "auto")
    if mode not in _MODES:
        raise HTTPException(400, f"mode: must be one of {', '.join(_MODES)}")
    checkpoint = field(body, "checkpoint", str) or None
    seed, steps = _number(body, "seed", 0, low=0, high=2**31), _number(body, "max_steps", USUAL_STEPS)
    pictures = field(body, "pictures", bool, True)

    def begin() -> str:
        from etude.inspecting.desk import Wanted

        return _desk(request).open(Wanted(run, checkpoint, mode, seed, steps, pictures)).id

    return JSONResponse({"session": await run_in_threadpool(begin)})


def _status(request: Request) -> Response:
    session = _session(request)
    recordings = [] if session.busy is not None else [_summary(session, number) for number in sorted(session.recordings)]
    return json_answer(
        request,
        {
            "busy": session.busy,
            "steps": session.steps,
            "max_steps": session.wanted.max_steps,
            "error": session.error,
            "is_open": session.inspector is not None,
            "recordings": recordings,
        },
    )


def _facts(request: Request) -> Response:
    from etude.inspecting import facts, pictures, table

    session = _session(request)
    inspector = session.opened()
    space: Any = inspector.environment.single_action_space
    units = inspector.performer.reader.units
    return json_answer(
        request,
        {
            **table.about(inspector),
            "gamma": units.gamma,
            "gae_lambda": units.gae_lambda,
            "notes": list(inspector.notes),
            "action_labels": list(table.action_labels(inspector)),
            "observation_labels": list(table.observation_labels(inspector)),
            "discrete_actions": int(space.n) if hasattr(space, "n") and not space.shape else None,
            "low": space.low.flatten().tolist() if hasattr(space, "low") else None,
            "high": space.high.flatten().tolist() if hasattr(space, "high") else None,
            "can_branch": inspector.environment.snapshot != "restart",
            "has_world": inspector.world is not None,
            "drive": None if inspector.pilot is None else inspector.pilot.facts(),
            "sees_pictures": pictures.picture_part(inspector.environment) is not None,
            "tabs": {
                "environment": facts.environment_facts(inspector),
                "model": facts.model_facts(inspector),
                "checkpoint": facts.checkpoint_facts(inspector),
            },
        },
    )


def _world(request: Request) -> Response:
    """Return the shapes of a simulated world; where they are is said by `_poses`."""
    session = _session(request)
    world = session.opened().world
    if world is None:
        raise HTTPException(404, "nothing here is simulated in three dimensions")
    return json_answer(request, _desk(request).compute(session, world.describe))


async def _stop(request: Request) -> Response:
    _session(request).stop.set()
    return JSONResponse({"ok": True})


def _close(request: Request) -> Response:
    _desk(request).close(_session(request))
    return JSONResponse({"ok": True})


async def _branch(request: Request) -> Response:
    body = await json_body(request)
    other, mode = field(body, "run", str), field(body, "mode", str)
    if mode not in (None, "greedy", "sample"):
        raise HTTPException(400, "mode: must be greedy or sample")
    run = workspace_of(request).run_directory(other) if other else None
    checkpoint, step = field(body, "checkpoint", str) or None, _number(body, "step", 0, low=0)
    number, steps = request.path_params["recording"], _number(body, "max_steps", USUAL_STEPS)

    def begin() -> None:
        how: dict[str, Any] = {"run": run, "checkpoint": checkpoint, "mode": mode, "max_steps": steps}
        _desk(request).branch(_session(request), number, step, action=body.get("action"), **how)

    await run_in_threadpool(begin)
    return JSONResponse({"ok": True})


async def _more(request: Request) -> Response:
    body = await json_body(request)
    steps = _number(body, "max_steps", USUAL_STEPS)
    await run_in_threadpool(lambda: _desk(request).go_on(_session(request), request.path_params["recording"], steps))
    return JSONResponse({"ok": True})


async def _drive(request: Request) -> Response:
    """Begin a drive at a step: a future that goes on as it is steered."""
    body = await json_body(request)
    step, number = _number(body, "step", 0, low=0), request.path_params["recording"]
    made = await run_in_threadpool(lambda: _desk(request).drive(_session(request), number, step))
    return JSONResponse({"number": made})


async def _steer(request: Request) -> Response:
    """Drive for some steps: what is asked for goes in, and where everything was after each step comes back."""
    body = await json_body(request)
    steps, number = _number(body, "steps", 5, high=MOST_STEERED), request.path_params["recording"]
    session = _session(request)
    if len(session.recording(number).steps) + steps > MOST_STEPS:
        raise HTTPException(400, f"a drive has {MOST_STEPS:,} steps at most; begin another")
    told = await run_in_threadpool(lambda: _desk(request).steer(session, number, body.get("command"), steps))
    poses = b64encode(b"".join(pose.tobytes() for pose in told.pop("poses"))).decode()
    return JSONResponse(standard_json({**told, "poses": poses, "ending": session.recording(number).ending}))


# ---- recordings -------------------------------------------------------------------------------------------------------


def _steps(request: Request) -> Response:
    from etude.inspecting import table

    session, recording = _finished(request)
    small = all(part.size <= table.MOST_ENTRIES for part in _parts(recording))
    whole = table.episode(session.opened(), recording, with_observations=small)
    return json_answer(request, {**whole, "frames": len(recording.frames)})


def _poses(request: Request) -> Response:
    """Return where the shapes of the world are: float32, (frames, shapes, 7)."""
    _, recording = _finished(request)
    if not recording.poses:
        raise HTTPException(404, "nothing here is simulated in three dimensions")
    return tagged(request, b"".join(pose.tobytes() for pose in recording.poses), "application/octet-stream")


def _picture(request: Request) -> Response:
    """Return a picture: the frame as drawn, what the network sees, what its model expected, or what decided."""
    from etude.files.png import png_bytes
    from etude.inspecting import pictures

    session, recording = _finished(request)
    kind, step = request.path_params["kind"], request.path_params["step"]
    if kind == "frame":
        if step >= len(recording.frames):
            raise HTTPException(404, "there is no such frame")
        return _png(request, recording.frames[step])
    if step >= len(recording.steps) or kind not in ("seen", "predicted", "saliency"):
        raise HTTPException(404, "there is no such picture")
    inspector = session.opened()
    if kind == "saliency":
        picture = _desk(request).compute(session, lambda: pictures.saliency(inspector, recording, step))
    else:
        shown = recording.steps[step].observation if kind == "seen" else recording.steps[step].insight.predicted_observation
        picture = None if shown is None else pictures.stack_picture(inspector.environment, shown)
    if picture is None:
        raise HTTPException(404, "there is no such picture")
    return _png(request, png_bytes(picture))


def _export(request: Request) -> Response:
    from etude.inspecting import table

    session, recording = _finished(request)
    inspector, kind = session.opened(), request.path_params["kind"]
    if kind == "csv":
        text, media = table.as_csv(inspector, [recording]), "text/csv; charset=utf-8"
    elif kind == "json":
        text, media = json.dumps(standard_json(table.as_json(inspector, [recording]))), "application/json"
    else:
        raise HTTPException(404, "episodes are written as csv or json")
    name = f"episode-seed-{recording.seed}.{kind}"
    return Response(text.encode(), media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'})


# ---- in common --------------------------------------------------------------------------------------------------------


def _desk(request: Request) -> Desk:
    """The inspections of this app; made with the first one."""
    from etude.inspecting.desk import Desk

    state = request.app.state
    if not hasattr(state, "inspections"):
        state.inspections = Desk(getattr(state, "trusted_runs", frozenset()))
    return state.inspections


def _session(request: Request) -> Session:
    return _desk(request).session(request.path_params["session"])


def _finished(request: Request) -> tuple[Session, Recording]:
    session = _session(request)
    if session.busy is not None:
        raise HTTPException(409, "this inspection is at work")
    return session, session.recording(request.path_params["recording"]).as_it_stands()


def _summary(session: Session, number: int) -> dict[str, Any]:
    recording = session.recordings[number]
    parents = {id(each): other for other, each in session.recordings.items()}
    origin = recording.origin
    step = None if origin is None or origin.step >= len(recording.steps) else recording.steps[origin.step]
    return {
        "number": number,
        "seed": recording.seed,
        "policy": recording.performer.name,
        "mode": recording.performer.mode,
        "return": recording.total_reward,
        "length": len(recording.steps),
        "ending": recording.ending,
        "driven": bool(recording.steps) and recording.steps[-1].command is not None,
        "branched_at": None if origin is None else origin.step,
        "parent": None if origin is None else parents.get(id(origin.recording)),
        "forced": None if step is None or not step.is_forced else step.action.tolist(),
    }


def _parts(recording: Recording) -> list[Any]:
    first = recording.steps[0].observation if recording.steps else {}
    return list(first.values()) if isinstance(first, dict) else [first]


def _png(request: Request, data: bytes) -> Response:
    answer = tagged(request, data, "image/png")
    answer.headers["cache-control"] = "private, max-age=600"
    return answer


def _number(body: dict[str, Any], name: str, default: int, *, low: int = 1, high: int = MOST_STEPS) -> int:
    value = field(body, name, int, default)
    if not low <= value <= high:
        raise HTTPException(400, f"{name}: must be from {low} to {high:,}")
    return value

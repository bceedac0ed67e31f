"""JSON to and from pages: entity tags, limits, and errors as one line."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from etude.errors import EtudeError
from etude.files.atomic import standard_json
from etude.files.documents import DocumentError, parse_json
from etude.files.printable import printable


def json_answer(request: Request, value: Any) -> Response:
    """Return a value as JSON, or 304 where the page has exactly this already; NaN and infinities become null."""
    body = json.dumps(standard_json(value), separators=(",", ":")).encode()
    return tagged(request, body, "application/json")


def tagged(request: Request, body: bytes, media_type: str, tag: str | None = None) -> Response:
    """Return bytes with an entity tag, or 304 where the page has them already."""
    etag = f'"{tag or hashlib.sha256(body).hexdigest()[:24]}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"etag": etag})
    return Response(body, media_type=media_type, headers={"etag": etag})


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object that was sent; 400 where it is none."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send application/json")
    try:
        value = parse_json(await request.body())
    except DocumentError as error:
        raise HTTPException(400, str(error)) from None
    if not isinstance(value, dict):
        raise HTTPException(400, "send a JSON object")
    return value


def field(value: dict[str, Any], name: str, kind: type, default: Any = None, *, longest: int = 1000) -> Any:
    """Return a field of a JSON object; 400 where it is of another type or too long."""
    given = value.get(name, default)
    if given is default:
        return default
    if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
        raise HTTPException(400, f"{name}: not a {kind.__name__}")
    if isinstance(given, str | list) and len(given) > longest:
        raise HTTPException(400, f"{name}: longer than {longest}")
    return given


async def on_user_error(_request: Request, error: Exception) -> Response:
    """Answer an EtudeError: what was asked can't be done, and its message says why."""
    assert isinstance(error, EtudeError)
    return JSONResponse({"error": printable(str(error))[:2000]}, status_code=400)


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Answer a refusal of a route."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)

"""The gate in front of every route: who may ask, how much may be sent, and what a browser may do with the answer."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etude.ui.access import Access, Refusal

LARGEST_BODY = 64 * 1024
LONGEST_PATH = 1024
LONGEST_QUERY = 48 * 1024
"""Two hundred runs by their ids."""
_METHODS = ("GET", "HEAD", "POST")
# No inline script, nothing from elsewhere; trusted types make a page that builds HTML from text fail rather than run it.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class _BodyTooLargeError(Exception):
    """More was sent than any request of ours needs."""


class Guard:
    """ASGI middleware: refuses what `Access` refuses and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(refusal, send)
            return
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": _completed(message["headers"])}
            await send(message)

        try:
            await self._app(scope, _limited(receive), with_headers)
        except _BodyTooLargeError:
            if not started:
                await _refuse(Refusal(413, f"more than {LARGEST_BODY:,} bytes were sent"), send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        path, headers = scope["path"], _by_name(scope["headers"])
        if headers is None:
            return Refusal(400, "a header that may stand once stands twice")
        if scope["method"] not in _METHODS:
            return Refusal(405, "only GET, HEAD and POST are answered")
        if len(path) > LONGEST_PATH or len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return Refusal(414, "the address is too long")
        if not path.isprintable() or "\\" in path or ".." in path.split("/"):
            return Refusal(400, "the address is not one of ours")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 12:
            return Refusal(400, "Content-Length is not a number")
        if int(length) > LARGEST_BODY:
            return Refusal(413, f"more than {LARGEST_BODY:,} bytes were sent")
        return self._access.refusal(scope["method"], path, headers)


def _by_name(headers: list[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """Return the headers by name; None where one that decides who asks is there twice, and readers could differ."""
    found: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1").lower()
        if name in found and name in ("host", "origin", "sec-fetch-site", "content-length", "x-etude-token"):
            return None
        joined = f"{found[name]}; " if name in found else ""
        found[name] = joined + value.decode("latin-1")
    return found


def _limited(receive: Receive) -> Receive:
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise _BodyTooLargeError
        return message

    return limited


def _completed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add what an answer has not set itself."""
    given = {name.lower() for name, _ in headers}
    missing = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in given]
    return [*headers, *missing]


async def _refuse(refusal: Refusal, send: Send) -> None:
    body: dict[str, Any] = {"error": refusal.reason}
    headers = [(b"content-type", b"application/json")]
    data = json.dumps(body).encode()
    headers.append((b"content-length", str(len(data)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": _completed(headers)})
    await send({"type": "http.response.body", "body": data})

"""Requests to an app in this process: exactly the bytes that a test gives, well-formed or not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette

HOST = "127.0.0.1:8750"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks one app; `token` goes along with every request unless it is None."""

    def __init__(self, app: Starlette, token: str | None = None) -> None:
        self._app, self._token = app, token

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers)

    def post(self, path: str, value: Any = None, headers: dict[str, str] | None = None) -> Answer:
        given = {"content-type": "application/json", **(headers or {})}
        return self.ask("POST", path, given, json.dumps({} if value is None else value).encode())

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """Ask for a path with its query, percent-encoded as a browser would send it."""
        known = {"host": HOST, **({} if self._token is None else {"x-etude-token": self._token})}
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in {**known, **(headers or {})}.items()]
        raw, _, query = path.partition("?")
        return self.ask_raw(method, raw.encode("latin-1"), query.encode("latin-1"), lines, body)

    def ask_raw(
        self, method: str, raw_path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> Answer:
        """Ask as a server would pass it on: bytes as they came from the network."""
        from urllib.parse import unquote

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path.decode("ascii", "replace")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in headers],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 8750),
        }
        return asyncio.run(self._run(scope, body))

    async def _run(self, scope: dict[str, Any], body: bytes) -> Answer:
        sent: list[Any] = []
        answered = asyncio.Event()
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if not waiting:
                await answered.wait()
            return waiting.pop(0) if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.set()

        await self._app(scope, receive, send)
        start = next(message for message in sent if message["type"] == "http.response.start")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in sent))

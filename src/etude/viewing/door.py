"""The door of the page in a browser: the port it listens on, and who gets in.

viser answers whoever asks: any page on the web could open a WebSocket to it. So each request passes `etude.ui.access`, as
those of the web app do; on an address that others reach, only who opened the address with the token gets in.
"""

from __future__ import annotations

import hmac
import socket
from http import HTTPStatus
from urllib.parse import parse_qs

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from etude.ui.access import Access, is_loopback, new_token
from etude.ui.listening import address_of, listen

PORT = 8770


class Door:
    """Listens from the moment that it is made, so that what is wrong with a port is said before anything is loaded."""

    def __init__(self, host: str, port: int | None = None) -> None:
        self.host, self.is_local = host, is_loopback(host)
        self.socket: socket.socket = listen(host, port, PORT)
        self.port: int = self.socket.getsockname()[1]
        self._token = new_token()
        pages = frozenset({"/"}) if self.is_local else frozenset[str]()
        self._access = Access(self._token, host, pages)

    @property
    def address(self) -> str:
        """Where to begin; on an address that others reach with the token, which becomes a cookie there."""
        start = address_of(self.host, self.port)
        return f"{start}/" if self.is_local else f"{start}/?token={self._token}"

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not get in, or that brings the token; None for all others."""
        path, _, query = request.path.partition("?")
        given = parse_qs(query).get("token", [""])[0]
        if not self.is_local and path == "/" and hmac.compare_digest(given.encode(), self._token.encode()):
            cookie = f"{self._access.cookie_name}={self._access.read_cookie()}; Path=/; HttpOnly; SameSite=Strict"
            return _answer(HTTPStatus.SEE_OTHER, "", Location="/", Set_Cookie=cookie)
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        refused = self._access.refusal("GET", path, headers)
        return None if refused is None else _answer(HTTPStatus(refused.status), f"{refused.reason}\n")

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


def _answer(status: HTTPStatus, text: str, **headers: str) -> Response:
    body = text.encode()
    found = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    found["Content-Type"], found["Content-Length"] = "text/plain; charset=utf-8", str(len(body))
    return Response(status.value, status.phrase, found, body)

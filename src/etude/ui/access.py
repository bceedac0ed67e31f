"""Who may ask for what: the decision on one request, from its method and headers alone.

A page on the web can make a browser send requests to this machine. Three checks keep such pages out:

- the Host header names this server (a name that was pointed at 127.0.0.1 by its owner, DNS rebinding, does not);
- Origin and Sec-Fetch-Site say that one of our own pages asks (a form or an image on another site does not);
- whatever changes something carries the token in a header, which no page of another origin can know or send.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

TOKEN_HEADER = "x-etude-token"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_ANY = ("0.0.0.0", "::", "")
_SAFE = ("GET", "HEAD")
_OPEN = ("/static/",)
"""Nothing in these is of a run: they may be read before the token is known."""


def new_token() -> str:
    """Return a token that can't be guessed."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    reason: str


@dataclass(frozen=True)
class Access:
    """The rules of one server."""

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    pages: frozenset[str] = frozenset()
    """Paths of pages, which hold nothing of a run: a link from elsewhere may lead to them, and they need no token."""

    @property
    def reads_need_token(self) -> bool:
        """Whether reading needs the token too: on any address that others reach."""
        return not is_loopback(self.host)

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, None where it may go on. `headers` have lower-case names."""
        host = headers.get("host", "")
        if not self._names_us(host):
            return Refusal(421, f"this server is not '{host[:80]}'; open the address that was printed")
        is_page = method in _SAFE and (path in self.pages or path.startswith(_OPEN))
        if not self._is_ours(headers, host, is_page=is_page):
            return Refusal(403, "the request comes from another site")
        if method in _SAFE:
            if is_page or not self.reads_need_token or self._has_token(headers) or self._has_cookie(headers):
                return None
            return Refusal(401, "reading needs the token: open the address that was printed")
        if not self._has_token(headers):
            return Refusal(401, "changing something needs the token: open the address that was printed")
        return None

    @property
    def cookie_name(self) -> str:
        """Of this server alone: a browser sends the cookies of all servers of a machine to each, whatever their port."""
        return f"etude-ui-{self._derived(b'etude ui: name')[:12]}"

    def read_cookie(self) -> str:
        """Return the cookie that lets a browser's images and videos be read; the token can't be had from it."""
        return self._derived(b"etude ui: read")

    def _derived(self, what: bytes) -> str:
        return hmac.new(self.token.encode(), what, hashlib.sha256).hexdigest()

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self.token.encode())

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        parts = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        given = next((value for name, _, value in parts if name == self.cookie_name), "")
        return hmac.compare_digest(given.encode(), self.read_cookie().encode())

    def _names_us(self, host: str) -> bool:
        name = _without_port(host)
        if name is None:
            return False
        if is_loopback(self.host):
            return name in _LOOPBACK_NAMES or name == self.host
        if name in (self.host.lower(), *_LOOPBACK_NAMES):
            return True
        # An address can't be pointed elsewhere by its owner, as a name can.
        return self.host in _ANY and (_is_address(name) or name in _names_of_machine())

    def _is_ours(self, headers: Mapping[str, str], host: str, *, is_page: bool) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return False
        if site in (None, "same-origin", "none"):
            return True
        # A link to one of our pages may stand anywhere; nothing of another site may be built from one.
        return is_page and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _without_port(host: str) -> str | None:
    """Return the name or address of a Host header, None where it is not one."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
        bracket = "]"
    well_formed = name and bracket and (not port or (port.isascii() and port.isdigit()))
    return name.lower() if well_formed else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _names_of_machine() -> tuple[str, ...]:
    return socket.gethostname().lower(), socket.getfqdn().lower()

"""A socket to listen on, or one clear line why there is none."""

from __future__ import annotations

import socket

from etude.errors import UserError


def listen(host: str, port: int | None, usual: int) -> socket.socket:
    """Return a socket that listens on a port; without one on the usual one, or on a free one where that is taken."""
    if port is None:
        try:
            return listen(host, usual, usual)
        except UserError:
            port = 0
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        raise UserError(f"--host {host} --port {port}: {reason}; --port 0 takes a free port") from None


def address_of(host: str, port: int) -> str:
    """Return where a browser finds what listens there, without a slash at the end."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

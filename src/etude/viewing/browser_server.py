"""viser's server behind a door of our own, without a word on the terminal, and never tunnelled to the internet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rich
import viser  # pyright: ignore[reportMissingImports] # an extra
import websockets.asyncio.server as websocket_server
from websockets.http11 import Request, Response

from etude.viewing.door import Door


class PageServer(viser.ViserServer):
    """viser's server, which listens where a door does, says nothing on the terminal, and is never shared."""

    def __init__(self, door: Door, label: str) -> None:
        with _behind(door), _silence():
            super().__init__(host=door.host, port=door.port, label=label, verbose=False)
        self.gui.configure_theme(show_share_button=False, show_logo=False)

    def request_share_url(self, verbose: bool = True) -> str | None:
        """Refuse what any client may ask for: a tunnel through a server of somebody else."""
        return None

    def stop(self) -> None:
        """Stop, without a word about it."""
        with _silence():
            super().stop()


@contextmanager
def _silence() -> Iterator[None]:
    console = rich.get_console()
    quiet, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = quiet


@contextmanager
def _behind(door: Door) -> Iterator[None]:
    """Within, what viser serves is served on the door's socket, and passes the door first: it has no setting for either."""
    serve = websocket_server.serve

    def through_door(handler: Any, host: str, port: int, *, process_request: Callable[..., Any], **settings: Any) -> Any:
        @functools.wraps(process_request)
        def checked(connection: Any, request: Request) -> Response | None:
            return door.refusal(request) or process_request(connection, request)

        return serve(handler, sock=door.socket, process_request=checked, **settings)

    websocket_server.serve = through_door  # type: ignore[misc,assignment] # for as long as the server starts
    try:
        yield
    finally:
        websocket_server.serve = serve  # type: ignore[misc]

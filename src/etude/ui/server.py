"""The app on a port."""

from __future__ import annotations

from pathlib import Path

import uvicorn

from etude.ui.access import new_token
from etude.ui.app import make_app
from etude.ui.listening import address_of, listen
from etude.ui.workspace import Workspace

_READ_AHEAD = 300
"""The newest runs, whose curves are asked for first."""
PORT = 8750


class Server:
    """Listens from the moment that it is made, so that its address is known before it serves.

    Without a `port` it is PORT, or a free one where that is taken; bookmarks hold as long as it is not.
    """

    def __init__(self, runs_dir: Path, *, host: str, port: int | None = None) -> None:
        self.token = new_token()
        self._socket = listen(host, port, PORT)
        self._host, self._port = host, self._socket.getsockname()[1]
        self.app = make_app(runs_dir, token=self.token, host=host)
        self._workspace: Workspace = self.app.state.workspace
        # A page that polls keeps its connection; ending must not wait for it.
        config = uvicorn.Config(
            self.app,
            log_config=None,  # its own would close the handlers of everything else in this process
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            ws="none",
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """Where to begin: the first page, with the token in the fragment, which browsers send to nobody."""
        return f"{address_of(self._host, self._port)}/#token={self.token}"

    def serve(self) -> None:
        """Answer requests until Ctrl-C or `stop`."""
        self._workspace.metrics.read_in_background([run.path for run in self._workspace.runs().runs[:_READ_AHEAD]])
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Make `serve` return, from any thread."""
        self._server.should_exit = True

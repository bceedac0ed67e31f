"""`etude ui`: runs in the browser."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import note, say
from etude.cli.parameters import RunsFolder
from etude.cli.places import existing_runs_root


def ui(
    *,
    runs: RunsFolder = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    open_browser: Annotated[bool, Parameter(name="--open")] = False,
) -> int:
    """Show runs in the browser: tables, curves, videos and settings, live; start, stop and resume them. Ctrl-C ends it.

    Nothing leaves this machine, and only this machine reaches it. The address that is printed holds the token that changing
    something needs.

    Parameters
    ----------
    port
        The port to listen on. Default: 8750, or a free one where that is taken.
    host
        The address to listen on. Any other than this machine's own makes reading need the token too; the traffic is not
        encrypted, so prefer `ssh -L`.
    open_browser
        Open the address in a browser.
    """
    import importlib.util

    from etude.errors import MissingPackageError, UserError

    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise MissingPackageError("etude ui needs starlette and uvicorn: pip install 'etude[ui]'")
    if port is not None and not 0 <= port <= 65535:
        raise UserError(f"--port {port}: must be from 0 to 65535")
    from etude.ui.access import is_loopback
    from etude.ui.server import Server

    root = existing_runs_root(runs)
    server = Server(root, host=host, port=port)
    if not is_loopback(host):
        note(f"--host {host}: others reach this server; reading needs the token too, and nothing is encrypted")
    say(server.address)
    note("the address holds the token: whoever has it can start and stop runs. Ctrl-C ends this")
    if open_browser:
        import webbrowser

        webbrowser.open(server.address)
    server.serve()
    return 0

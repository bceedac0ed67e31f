"""The socket between the ranks of one machine and the parent that started them (`etude.training.ranks`).

A rank hears from it why another one ended, and that the parent itself is gone. The first says which run it is.
Under torchrun there is none: what it prints says why a rank ended.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

from etude.training.stop_signals import expect_echoes

PARENT = "ETUDE_RANKS_PARENT"
"""Names the descriptor of a rank's end of the socket."""
REASON_S = 5.0
"""How long a rank that lost another waits to be told why."""
ORPHAN_S = 600.0
"""How long ranks may take to save and stop once their parent is gone."""


class ParentLink:
    """A rank's end of the socket."""

    def __init__(self, link: socket.socket | None, *, is_first: bool) -> None:
        self._link, self._is_first = link, is_first
        self._reason = ""
        self._told = threading.Event()
        if link is not None:
            threading.Thread(target=self._listen, name="etude-parent", daemon=True).start()

    @classmethod
    def open(cls, *, is_first: bool) -> ParentLink:
        """Return the link that the parent gave this process, if one did."""
        descriptor = os.environ.pop(PARENT, None)  # which is not for the programs that this process starts
        link = None if descriptor is None else socket.socket(fileno=int(descriptor))
        if link is not None:
            link.set_inheritable(False)
            expect_echoes()
        return cls(link, is_first=is_first)

    def tell_run(self, path: Path) -> None:
        """Say which run this is, for the parent's last words."""
        if self._link is not None:
            self._link.sendall(f"{path}\n".encode())

    def reason(self) -> str | None:
        """Return why another rank ended, if the parent says so soon; None where nobody does."""
        if self._link is None or not self._told.wait(REASON_S):
            return None
        return self._reason or None

    def _listen(self) -> None:
        assert self._link is not None
        heard = b""
        while data := self._hear():
            heard += data
            if heard.endswith(b"\0"):
                self._reason = heard.rstrip(b"\0").decode(errors="replace")
                self._told.set()
        if self._is_first:
            os.kill(os.getpid(), signal.SIGTERM)  # saves and stops, and tells the others to
        time.sleep(ORPHAN_S)
        os._exit(1)

    def _hear(self) -> bytes:
        assert self._link is not None
        try:
            return self._link.recv(1 << 16)
        except OSError:
            return b""

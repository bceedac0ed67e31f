"""A command that another one started ends with it, however that one ends."""

from __future__ import annotations

import os
import signal
import sys

_PARENT = "ETUDE_PARENT"
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """If this command belongs to another, be sent SIGTERM when that dies, by a SIGKILL too: a run then saves itself and stops.

    Only Linux can; elsewhere a run whose parent was killed trains on to its end.
    """
    given = os.environ.pop(_PARENT, None)
    if given is not None:
        from etude.training.stop_signals import expect_echoes

        expect_echoes()
    if given is None or not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != given:  # it died before this was asked for
        sys.exit(130)

"""Is the process that owned a run still there?"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path


def this_process() -> dict[str, object]:
    """What identifies this process later: pid, the pid's start time and the machine."""
    return {"pid": os.getpid(), "pid_started": _start_time(os.getpid()), "host": platform.node()}


def is_alive(owner: Mapping[str, object]) -> bool:
    """Whether the process described by `owner` still runs; of another machine's process nothing is known: True."""
    pid, started = owner.get("pid"), owner.get("pid_started")
    if not isinstance(pid, int) or pid <= 0:
        return False
    if owner.get("host") not in (None, platform.node()):
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # someone else's process, but a process
    now = _start_time(pid)
    # Containers hand out the same small pids again and again: without the start time, any of them would do.
    return now != "dead" and (started is None or now is None or now == started)


def _start_time(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    # The second field is the command in parentheses and may contain spaces.
    state, *fields = text.rpartition(")")[2].split()
    return "dead" if state in "ZX" else fields[18]

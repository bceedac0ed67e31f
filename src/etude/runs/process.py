"""Is the process that owned a run still there?"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

_DEEPEST = 16


def this_process() -> dict[str, object]:
    """What identifies this process later: pid, the pid's start time and the machine."""
    return {"pid": os.getpid(), "pid_started": _start_time(os.getpid()), "host": platform.node()}


def is_alive(owner: Mapping[str, object]) -> bool:
    """Whether the process described by `owner` still runs; of another machine's process nothing is known: True."""
    pid, started = owner.get("pid"), owner.get("pid_started")
    if not isinstance(pid, int) or pid <= 0:
        return False
    if not is_here(owner):
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


def is_here(owner: Mapping[str, object]) -> bool:
    """Whether the process is one of this machine's."""
    return owner.get("host") in (None, platform.node())


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process is `ancestor`, or was started by it or by one of its own."""
    for _ in range(_DEEPEST):
        if pid == ancestor:
            return True
        found = _parent(pid)
        if found is None or found <= 1:
            return False
        pid = found
    return False


def _parent(pid: int) -> int | None:
    fields = _fields(pid)
    return None if fields is None else int(fields[1])


def _start_time(pid: int) -> str | None:
    fields = _fields(pid)
    return None if fields is None else "dead" if fields[0] in "ZX" else fields[19]


def _fields(pid: int) -> list[str] | None:
    """What Linux says of a process, from its state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    # The second field is the command in parentheses and may contain spaces.
    return text.rpartition(")")[2].split()

"""How much of the machine is taken now: memory, GPU and disk, read from the kernel and the driver, at most once a second."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

SECONDS_BETWEEN_READINGS = 1.0
"""A row a millisecond would otherwise ask the system for what can't have changed; one reading takes a fraction of one."""
MIB = 2**20
_MEMORY_INFO, _STATM, _OWN_GROUPS = Path("/proc/meminfo"), Path("/proc/self/statm"), Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# Version 1 of control groups writes this where there is no limit.
_NO_LIMIT = 2**60


class SystemUse:
    """What the machine says of itself; the same numbers are returned until a second has passed.

    What can't be read here (another system, no driver) is left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = -float("inf")
        self._found: dict[str, float] = {}
        self._has_utilization = True

    def read(self, folder: Path | None) -> dict[str, float]:
        """Return metrics of memory, of the GPU once it is in use, and of the disk that `folder` is on."""
        now = self._clock()
        if now >= self._next:
            self._next = now + SECONDS_BETWEEN_READINGS
            self._found = {**_memory(), **self._gpu(), **_disk(folder)}
        return self._found

    def _gpu(self) -> dict[str, float]:
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return {}
        found: dict[str, float] = {}
        with suppress(RuntimeError):  # a driver that does not say
            free, total = torch.cuda.mem_get_info()
            found = {"system/gpu_memory_used_mib": (total - free) / MIB, "system/gpu_memory_share": 1.0 - free / total}
        if self._has_utilization:
            try:
                found["system/gpu_utilization"] = torch.cuda.utilization() / 100.0
            except Exception:  # noqa: BLE001 - asked through a package that need not be there, and has errors of its own
                self._has_utilization = False
        return found


def _memory() -> dict[str, float]:
    found: dict[str, float] = {}
    with suppress(OSError, ValueError, IndexError):
        found["system/rss_mib"] = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / MIB
    shares = [share for share in (_share_of_machine(), _share_of_group()) if share is not None]
    if shares:
        found["system/memory_share"] = max(shares)
    return found


def _share_of_machine() -> float | None:
    """How much of the machine's memory is taken, by whomever: the kernel ends processes when there is none left."""
    try:
        sizes = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", _MEMORY_INFO.read_text(), re.MULTILINE))
        return 1.0 - int(sizes["MemAvailable"]) / int(sizes["MemTotal"])
    except (OSError, KeyError, ZeroDivisionError):
        return None


def _share_of_group() -> float | None:
    """How much of a container's, or a job's, own limit is taken; what it has read from files is given back when needed."""
    shares = []
    for folder, current, limit in _group_folders():
        try:
            most = (folder / limit).read_text().strip()
            if most == "max" or not 0 < int(most) < _NO_LIMIT:
                continue
            used = int((folder / current).read_text())
            cached = re.search(r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            shares.append(max(0.0, used - (int(cached[1]) if cached else 0)) / int(most))
        except (OSError, ValueError):
            continue
    return max(shares, default=None)


def _group_folders() -> list[tuple[Path, str, str]]:
    """Return the control groups that hold this process, from its own up to the root: any of them may have a limit."""
    found = []
    with suppress(OSError):
        for line in _OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                base, current, limit = _GROUPS, "memory.current", "memory.max"
            elif "memory" in controllers.split(","):
                base, current, limit = _GROUPS / "memory", "memory.usage_in_bytes", "memory.limit_in_bytes"
            else:
                continue
            folder = base / path.lstrip("/")
            # Within a container the path may be the host's, and the container's own group is what is mounted at the root.
            while folder != base and base in folder.parents:
                found.append((folder, current, limit))
                folder = folder.parent
            found.append((base, current, limit))
    return found


def _disk(folder: Path | None) -> dict[str, float]:
    if folder is None:
        return {}
    try:
        disk = os.statvfs(folder)
    except OSError:
        return {}
    return {"system/disk_free_mib": disk.f_bavail * disk.f_frsize / MIB}

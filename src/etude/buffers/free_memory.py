"""How much memory can still be taken: by the machine, by the groups this process is in, and by its own limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import torch

_NO_LIMIT = 2**60
"""What groups of version 1 say where there is none, or more."""


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes can still be taken on a device, or None if that can't be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    known = [*_machine_memory(), *group_memory(), *limit_memory()]
    return max(0, min(known)) if known else None


def _machine_memory() -> Iterator[int]:
    meminfo = _read_table(Path("/proc/meminfo"))
    if "MemAvailable:" in meminfo:
        yield meminfo["MemAvailable:"] * 1024


def group_memory(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Yield what every control group that holds this process has left, up to the outermost that can be seen.

    A container's limit and a batch system's are such groups, which /proc/meminfo does not show. Cached files count as free.
    """
    try:
        lines = [line.split(":", 2) for line in groups.read_text("utf-8").splitlines()]
    except (OSError, UnicodeError):
        lines = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            for folder in (mounted, mounted / "unified"):
                yield from _left(folder, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _left(mounted / "memory", path, *names)


def _left(mounted: Path, path: str, limit: str, used: str, cached: str) -> Iterator[int]:
    inner = PurePosixPath(path.lstrip("/"))
    for group in (inner, *inner.parents):
        # Within a container the path may be the host's, of which nothing is mounted here but the container's own root.
        folder = mounted / group
        try:
            most, taken = (int((folder / name).read_text("ascii")) for name in (limit, used))
        except (OSError, ValueError):  # not there, or `max`
            continue
        if most < _NO_LIMIT:
            yield most - taken + _read_table(folder / "memory.stat").get(cached, 0)


def limit_memory(status: Path = Path("/proc/self/status")) -> Iterator[int]:
    """Yield what `ulimit -v` and `ulimit -d` leave to this process."""
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    table = _read_table(status)
    for limit, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and used in table:
            yield most - table[used] * 1024


def _read_table(path: Path) -> dict[str, int]:
    try:
        lines = [line.split() for line in path.read_text("utf-8", errors="replace").splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}

"""What to run elsewhere: command lines of Etude, what each of them needs, and where runs land."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.errors import UserError

_LONGEST_NAME = 48
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Resources:
    """What each task may use; None is whatever the machine gives."""

    cpus: int | None = None
    gpus: int = 0
    memory_mb: int | None = None
    seconds: int | None = None


@dataclass(frozen=True)
class Job:
    """Tasks of one kind, numbered from 0, each a command line of Etude."""

    name: str
    """Of letters, digits, dots, dashes and underscores: safe in any file name, script and command."""
    tasks: tuple[tuple[str, ...], ...]
    """What follows `etude` in each task, --runs left out: every backend says where runs land."""
    resources: Resources
    runs: Path
    """The folder of runs here: where they land, or are brought to."""
    folder: Path
    """The folder that the tasks start in, or a copy of it: own modules and settings lie there."""
    at_once: int | None = None
    """At most this many tasks at a time."""


def safe_name(text: str) -> str:
    """Return `text` without whatever a shell, a scheduler or a cloud could take for something else."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:_LONGEST_NAME].strip("-._") or "job"


def job_name(tasks: Sequence[Sequence[str]], runs: Path) -> str:
    """Return a name that follows from what is run: the same job has the same name, and goes on where it was."""
    title = next((word for word in tasks[0][1:] if not word.startswith("-")), tasks[0][0])
    mark = hashlib.sha256(json.dumps([list(map(list, tasks)), str(runs)]).encode()).hexdigest()[:8]
    return f"{safe_name(title)[: _LONGEST_NAME - 9].strip('-._')}-{mark}"


def check_name(name: str) -> str:
    """Return a name that the user gave, if every backend can carry it."""
    if name != safe_name(name):
        raise UserError(f"--job-name {name!r}: letters, digits, dots, dashes and underscores, such as {safe_name(name)}")
    return name


def parse_memory(text: str) -> int:
    """Read `8G`, `500M` or `1.5T`; returns MiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    size = 0 if found is None else round(float(found[1]) * {"M": 1, "G": 1024, "T": 1024**2}[found[2].upper()])
    if size < 1:
        raise UserError(f"--memory {text}: a number with its unit, such as 8G or 500M")
    return size


def parse_time(text: str) -> int:
    """Read `4h`, `90m`, `1d12h`, `04:00:00` or `1-12:00:00`; returns seconds."""
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text.strip())
    units = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    seconds = 0
    for found in (clock, units):
        if found is not None:
            numbers = zip((found[index] or "0" for index in range(1, 5)), "dhms", strict=True)
            seconds = sum(int(number) * _UNITS[unit] for number, unit in numbers)
            break
    if seconds < 1:
        raise UserError(f"--time {text}: such as 4h, 90m, 1d12h or 04:00:00")
    return seconds


def clock_time(seconds: int) -> str:
    """Return seconds as D-HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    return f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"

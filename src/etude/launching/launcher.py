"""The one interface of all backends, and the record of what was launched."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from etude.errors import UserError, did_you_mean
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import read_own_bytes
from etude.launching.job import Job
from etude.launching.plan import File, Plan

FOLDER = ".launch"
"""In the folder of runs: one folder a launch, hidden from the list of runs."""
RECORD = "launch.json"
SUBMITTED = "submitted"
VERSION = 1


class Launcher(Protocol):
    """Turns a job into files and commands of one tool, and asks that tool about it later."""

    backend: ClassVar[str]

    def start(self, job: Job) -> Plan:
        """Return what starts the job; what its last command prints identifies it."""
        ...

    def states(self, launch: Launch) -> dict[int, str]:
        """Return one word for each task: waiting, running, finished, interrupted, failed or gone, or the tool's own."""
        ...

    def cancel(self, launch: Launch) -> Plan:
        """Return what stops it; runs save themselves first."""
        ...

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return what shows the output of a task, or of all."""
        ...

    def sync(self, launch: Launch) -> Plan:
        """Return what brings runs here; nothing where they are here already."""
        ...


@dataclass(frozen=True)
class Launch:
    """A job that was launched, as its folder tells of it."""

    path: Path
    backend: str
    name: str
    tasks: tuple[tuple[str, ...], ...]
    options: dict[str, Any]

    @property
    def runs(self) -> Path:
        """The folder of runs it belongs to."""
        return self.path.parent.parent

    @property
    def identity(self) -> str | None:
        """What the tool calls it, such as SLURM's job id; None before it was submitted."""
        try:
            return (self.path / SUBMITTED).read_text(encoding="utf-8").strip() or None
        except OSError:
            return None


def launch_folder(runs: Path, name: str) -> Path:
    """Return where the files of a launch lie."""
    return runs / FOLDER / name


def record_file(launcher: Launcher, job: Job) -> File:
    """Return the record of a launch: who started what, and how to ask about it."""
    record = {
        "version": VERSION,
        "backend": launcher.backend,
        "name": job.name,
        "options": asdict(launcher),  # type: ignore[call-overload] # every launcher is a dataclass of plain values
    }
    lines = [f'"{key}": {json.dumps(value)},' for key, value in record.items()]
    tasks = ",\n".join(f"  {json.dumps(list(task))}" for task in job.tasks)
    text = "\n".join(["{", *lines, '"tasks": [', tasks, "]}", ""])
    return File(launch_folder(job.runs, job.name) / RECORD, text)


def read_launch(runs: Path, name: str | None) -> Launch:
    """Return a launch by its name or the beginning of it; without one, the newest."""
    known = launches(runs)
    if not known:
        raise UserError(f"nothing was launched from {runs}; name another folder with --runs or $ETUDE_RUNS")
    if name is None:
        return known[0]
    exact = [launch for launch in known if launch.name == name]
    found = exact or [launch for launch in known if launch.name.startswith(name)]
    if len(found) != 1:
        names = [launch.name for launch in found or known]
        said = f"{len(found)} launches begin so" if found else f"no launch of this name{did_you_mean(name, names)}"
        raise UserError(f"{name}: {said}; there are {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}")
    return found[0]


def launches(runs: Path) -> list[Launch]:
    """Return the launches of a folder of runs, the newest first."""
    folder = runs / FOLDER
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if (path / RECORD).is_file()]
    paths.sort(key=lambda path: (path / RECORD).stat().st_mtime_ns, reverse=True)
    return [_read(path) for path in paths]


def _read(path: Path) -> Launch:
    try:
        record = parse_json(read_own_bytes(path / RECORD))
        tasks = tuple(tuple(str(word) for word in task) for task in record["tasks"])
        return Launch(path, str(record["backend"]), path.name, tasks, dict(record["options"]))
    except (OSError, DocumentError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path / RECORD} can't be read ({error}); remove the folder, or launch it again") from None

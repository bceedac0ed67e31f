"""A run directory: everything one training run leaves behind, under one id."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import EtudeError, UserError
from etude.files.atomic import remove_leftovers, replace_link, write_text_atomic
from etude.files.regular import own_folder
from etude.runs.disk_failure import disk_way_out
from etude.runs.layout import RunLayout
from etude.runs.lock import brief_lock, exclusive_lock
from etude.runs.naming import safe_name
from etude.runs.process import is_alive, this_process
from etude.runs.record_migration import VERSION, migrate_record
from etude.runs.records import read_record, write_record

if TYPE_CHECKING:
    from etude.runs.checkpoint import CheckpointStore

STATUSES = ("created", "running", "finished", "stopped", "interrupted", "failed")
LAST_LINK = "@last"
_LONGEST_NAME = 80


class Run(RunLayout):
    """A run on disk; `id` is the folder's name and names the run everywhere."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.id = path.name

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        name: str,
        config_yaml: str,
        resolved_yaml: str,
        group: str | None = None,
        tags: Sequence[str] = (),
        facts: Mapping[str, object] | None = None,
        furnish: Callable[[Path], None] = lambda path: None,
    ) -> Run:
        """Make a new run directory under `root`, with what was asked and what it resolved to.

        `facts` go into ``run.json``: what a list of runs shows without opening any config. `furnish` puts in what else every
        run has, before it is one: whoever is killed amid it leaves a folder, never a run that lacks something.
        """
        now = datetime.now(UTC)
        run: Run | None = None
        try:
            root.mkdir(parents=True, exist_ok=True)
            run = cls(_new_directory(root, f"{now.astimezone():%Y%m%d-%H%M%S}-{safe_name(name, _LONGEST_NAME)}"))
            for folder in (run.checkpoints_path, run.logs, run.videos):
                folder.mkdir()
            write_text_atomic(run.config_path, config_yaml)
            write_text_atomic(run.resolved_path, resolved_yaml)
            furnish(run.path)
            record = {
                "version": VERSION,
                "id": run.id,
                "name": name,
                "created": now.isoformat(),
                "status": "running",
                **this_process(),
                "group": group,
                "tags": list(tags),
                **(facts or {}),
            }
            # Last: a folder without run.json is not a run yet.
            write_record(run.record_path, record)
            replace_link(root / LAST_LINK, run.id)
        except BaseException as error:
            if run is not None:
                shutil.rmtree(run.path, ignore_errors=True)  # half a run helps nobody
            if not isinstance(error, OSError):
                raise
            kind = UserError if disk_way_out(error) is None else EtudeError
            raise kind(f"can't create a run in {root}: {error.strerror or error}") from error
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open the run directory at `path`; UserError when it is not one."""
        # Resolved, so that a link or `.` gives the real id.
        run = cls(path.resolve())
        _ = run.record
        return run

    @classmethod
    def list(cls, root: Path) -> list[Run]:
        """Every run under `root`, newest first; folders that are not runs are ignored."""
        found: list[tuple[str, str, Run]] = []
        for path in run_folders(root):
            try:
                run = cls(path)
                found.append((str(run.record.get("created", "")), run.id, run))
            except UserError:
                continue
        return [run for _, _, run in sorted(found, key=lambda entry: entry[:2], reverse=True)]

    @classmethod
    def resolve(cls, selector: str, root: Path) -> Run:
        """Find a run by ``@last``, ``@best``, its id, a unique prefix of it, its name, or a path to it or its checkpoint."""
        from etude.runs.run_selection import select_run

        return select_run(selector, root).run

    @property
    def record(self) -> dict[str, Any]:
        """What ``run.json`` says now, in the current version."""
        return migrate_record(self.stored_record, self.path)

    @property
    def stored_record(self) -> dict[str, Any]:
        """What ``run.json`` says now, in the version that it was written in."""
        record = read_record(self.record_path)
        if record is None:
            raise UserError(f"{self.path}: not a run directory (no run.json)")
        if type(record.get("version")) is not int or record["version"] < 1:
            raise UserError(f"{self.record_path}: not of a run (no version)")
        if record["version"] > VERSION:
            raise UserError(f"run {self.id} was written by a newer Etude; upgrade Etude to use it")
        return record

    @property
    def status(self) -> str:
        """One of STATUSES, or ``crashed`` when it should be running and its process is gone."""
        record = self.record
        status = str(record.get("status"))
        return "crashed" if status == "running" and not is_alive(record) else status

    def update_status(self, **fields: object) -> None:
        """Change fields of ``run.json``; a status of ``running`` also makes this process the owner."""
        status = fields.get("status")
        if status is not None and status not in STATUSES:
            raise ValueError(f"status={status!r}: one of {', '.join(STATUSES)}")
        owner = this_process() if status == "running" else {}
        self._edit_record(lambda record: {**record, **owner, **fields})

    def edit_tags(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        """Add and remove tags, also while the run trains, and return those it has then."""
        for tag in add:
            if not tag.strip() or set(tag) & set(",\n"):
                raise UserError(f"tag {tag!r}: must have letters, and no comma")

        def edit(record: dict[str, Any]) -> dict[str, Any]:
            kept = [tag for tag in record.get("tags") or [] if tag not in remove]
            return {**record, "tags": list(dict.fromkeys([*kept, *(tag.strip() for tag in add)]))}

        return self._edit_record(edit)["tags"]

    def edit_group(self, group: str | None) -> None:
        """Put the run into a group, also while it trains; None takes it out of any."""
        if group is not None and not (group.strip() and group.isprintable()):
            raise UserError(f"group {group!r}: must have letters, and nothing that can't be printed")
        self._edit_record(lambda record: {**record, "group": None if group is None else group.strip()})

    def _edit_record(self, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        # Its own lock: the run's is held by the trainer for hours, and whoever tags the run must not wait for that.
        with brief_lock(self.path / ".record.lock"):
            record = edit(self.record)
            try:
                write_record(self.record_path, record)
            except OSError as error:
                raise EtudeError(f"{self.record_path} can't be written: {error.strerror or error}") from error
        return record

    def remove_leftovers(self) -> None:
        """Remove what a sitting that was killed left half-written; for the process that holds the run."""
        with brief_lock(self.path / ".record.lock"):
            names = ("run.json", "summary.json", "resolved.yaml", "metrics.csv", "run_status.json", "report.md", "report.html")
            remove_leftovers(self.path, *names)
        remove_leftovers(self.path / "provenance", "*.json")
        # Where it can't be done, the next save says why; but there may be none, so it is not left to that.
        with contextlib.suppress(OSError):
            self.checkpoints().remove_leftovers()
        remove_leftovers(self.logs, "superseded.jsonl")
        remove_leftovers(self.videos, "steps-*.mp4", "steps-*.png")

    @property
    def summary(self) -> dict[str, Any]:
        """The results so far, from ``summary.json``; empty when there are none yet."""
        return read_record(self.summary_path) or {}

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace ``summary.json``; NaN and infinities become null."""
        write_record(self.summary_path, summary)

    def checkpoints(self, keep: int = 1, keep_best: int = 1) -> CheckpointStore:
        """The run's checkpoints; how many are kept only matters to saving."""
        # Here, because it brings torch and listing runs must not wait for that.
        from etude.runs.checkpoint import CheckpointStore

        return CheckpointStore(self.checkpoints_path, keep, keep_best=keep_best, why_empty=self.why_no_checkpoints)

    @property
    def why_no_checkpoints(self) -> str | None:
        """When the checkpoints were cleaned up, in words; None if they were not."""
        try:
            cleaned = self.record.get("cleaned")
        except UserError:
            return None
        return f"its checkpoints were cleaned up on {str(cleaned.get('at'))[:10]}" if isinstance(cleaned, dict) else None

    def require_own_folders(self) -> None:
        """Make sure that what is written into the run's folders stays in the run: a link in the place of one is an error."""
        for folder in (self.checkpoints_path, self.logs, self.videos, self.path / "provenance"):
            own_folder(folder)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run for this process; UserError naming the pid when another one has it."""
        return exclusive_lock(self.path / ".lock", f"run {self.id}")


def _new_directory(root: Path, stem: str) -> Path:
    for count in itertools.count(1):
        path = root / (stem if count == 1 else f"{stem}-{count}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def run_folders(root: Path) -> Iterator[Path]:
    """Every folder under `root`, links and hidden ones aside; most of them are runs."""
    try:
        # Links (@last) would list a run twice; hidden folders are what a cut-off removal left.
        yield from [path for path in root.iterdir() if path.name[0] != "." and path.is_dir() and not path.is_symlink()]
    except OSError as error:
        raise UserError(f"runs directory {root}: {error.strerror or error}") from error

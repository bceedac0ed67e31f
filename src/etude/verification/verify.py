"""Verifies a run: its checkpoints are whole, and run again with its own code it gives the same numbers."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etude.errors import UserError
from etude.files.atomic import write_json_atomic
from etude.runs import trust
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.telemetry.names import Row
from etude.verification.code_place import CodePlace, code_of
from etude.verification.comparability import is_other_etude, late_obstacles, obstacles, other_packages
from etude.verification.damage import can_name_tensors, find_damage, name_tensors
from etude.verification.differences import compare_rows, compare_states
from etude.verification.report import Check, Report
from etude.verification.rerun import Rerun, compare_modes, plan, run_again
from etude.verification.subject import Position, Subject, read_subject

MODES_LIMIT = 1e-5
"""How far an eager and a compiled gradient step may end apart, relative to the values themselves."""

NUMPY_LIMIT = 1e-4
"""The same for a step in NumPy, whose tanh is rounded less carefully than torch's."""


@dataclass(frozen=True)
class Request:
    """What to verify, and how."""

    repository: Path | None = None
    current_code: bool = False
    steps: int | None = None
    resume_at: str | None = None
    """`random`, or environment steps: also run it with a stop and a resume there."""
    seed: int = 0
    eager_vs_compiled: bool = False
    trusted: bool = False
    keep: bool = False

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise UserError(f"--steps {self.steps}: must be at least 1")
        if self.resume_at is not None and self.resume_at != "random" and not self.resume_at.isdigit():
            raise UserError(f"--resume-at {self.resume_at}: must be random, or a number of environment steps")


class NotComparableError(Exception):
    """A re-run has found out that it can't repeat the run."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Listener:
    """Hears how far a verification is; this one does nothing about it."""

    def say(self, text: str) -> None:
        """Take in a message."""

    def begin(self, what: str, goal: int) -> None:
        """A re-run of `goal` environment steps is about to start."""

    def begun(self) -> None:
        """Its process is ready and trains."""

    def row(self, env_steps: int) -> None:
        """It has come this far."""

    def end(self) -> None:
        """It is over."""


def verify(run: Run, request: Request | None = None, listener: Listener | None = None) -> Report:
    """Run `run` again and compare; nothing in its directory changes but ``logs/verified.json``."""
    request, listener = request or Request(), listener or Listener()
    subject = read_subject(run, steps=request.steps)
    report = Report(run.id, "reproduced", damage=find_damage(run.checkpoints()))
    for damage in report.damage:
        listener.say(str(damage))
    if any(not can_name_tensors(damage, subject.last) for damage in report.damage):
        report.outcome = "differs"
    else:
        with _temporary_folder(request.keep) as temporary:
            _run_and_compare(subject, request, report, temporary, listener)
            report.kept = str(temporary) if request.keep else None
    _record(run, report)
    return report


def _run_and_compare(subject: Subject, request: Request, report: Report, temporary: Path, listener: Listener) -> None:
    run = subject.run
    options = {"current": request.current_code, "trusted": request.trusted, "repository": request.repository}
    with code_of(run, **options, temporary=temporary, say=listener.say) as place:
        report.code, report.notes = place.description, list(place.notes)
        report.reasons = obstacles(subject, brings_etude=place.brings_etude)
        if request.resume_at is not None and subject.facts.get("snapshot") == "restart":
            report.reasons.append("resume: its environment can't be saved in the middle of an episode (snapshot: restart)")
        if report.reasons:
            report.outcome = "not comparable"
            return
        report.other_packages = other_packages(subject)
        if not place.brings_etude and is_other_etude(subject):
            report.notes.append("the files of the installed Etude are not those that the run was made with")
        pause = None if request.resume_at is None else Position(_pause(request, subject))
        if request.eager_vs_compiled and subject.newest is None:
            raise UserError("--eager-vs-compiled starts from a checkpoint, and this run has none")
        again = _Again(subject, place, request.trusted or trust.is_own(run.path), report, listener)
        try:
            rerun = again.check(temporary / "again")
            if pause is not None:
                again.check(temporary / "resumed", pause)
        except NotComparableError as error:
            report.reasons, report.outcome = error.reasons, "not comparable"
            return
        if rerun.kept is not None and subject.last is not None:
            report.damage = [name_tensors(damage, subject.last.path, rerun.kept) for damage in report.damage]
        if report.damage or any(check.first is not None for check in report.checks):
            report.outcome = "differs"
        if request.eager_vs_compiled:
            again.compare_modes(temporary / "modes")


class _Again:
    """Re-runs of one run, each compared with what is stored."""

    def __init__(self, subject: Subject, place: CodePlace, allow_imports: bool, report: Report, listener: Listener) -> None:
        self.subject, self.place, self.allow_imports = subject, place, allow_imports
        self.report, self.listener = report, listener
        self._rows, self._said = 0, False

    def check(self, folder: Path, pause: Position | None = None) -> Rerun:
        """Run it again, with a stop and a resume at `pause`, and compare."""
        subject, report = self.subject, self.report
        what = "run again" if pause is None else f"run again, with a stop and a resume after {pause.env_steps:,} steps"
        began, self._rows, self._said = time.monotonic(), 0, False
        self.listener.begin(what, subject.end.env_steps)
        try:
            sittings = plan(subject, pause)
            hear = {"on_facts": self._hear_facts, "on_row": self._hear_row}
            rerun = run_again(subject, self.place, sittings, folder=folder, allow_imports=self.allow_imports, **hear)
        finally:
            self.listener.end()
        if pause is not None:
            stop = next(place for place in rerun.stops if place >= pause)
            what = f"run again, stopped at {stop.env_steps:,} environment steps and resumed"
        rows, again = subject.rows, rerun.rows
        if not subject.ends_by_itself:
            # What lies past the place that is verified is nobody's fault: the run was stopped there, or only a part was asked.
            rows = [row for row in rows if Position.of(row) <= rerun.end]
            again = again[: len(rows)]
        states = None
        if subject.last is not None and rerun.kept is not None and not report.damage:
            states = compare_states(subject.last.load(), Checkpoint.open(rerun.kept).load())
        elif subject.last is not None and rerun.kept is None:
            report.notes.append(f"the re-run never was where checkpoint {subject.last.name} was saved")
        checkpoint = None if subject.last is None else subject.last.name
        seconds = time.monotonic() - began
        report.checks.append(Check(what, compare_rows(rows, again), states, checkpoint, rerun.end.env_steps, seconds))
        return rerun

    def compare_modes(self, folder: Path) -> None:
        """Compare an eager gradient step from the last checkpoint with a compiled one, or with the run's own in NumPy."""
        assert self.subject.newest is not None
        self.listener.say("comparing an eager gradient step with a fast one; compiling takes a while")
        start = self.subject.newest.path
        modes = compare_modes(self.subject, self.place, start, folder=folder, allow_imports=self.allow_imports)
        limit = NUMPY_LIMIT if modes["mode"] == "numpy" else MODES_LIMIT
        self.report.modes = {**modes, "limit": limit}
        if not modes["largest"] <= limit:
            self.report.outcome = "differs"

    def _hear_facts(self, facts: dict[str, Any]) -> None:
        self.listener.begun()
        self.report.fingerprint = facts.get("fingerprint", self.report.fingerprint)
        reasons = late_obstacles(self.subject, facts)
        if reasons:
            raise NotComparableError(reasons)
        first, now = self.subject.run.record.get("config_hash"), facts.get("config_hash")
        note = "resolved.yaml is not the config that the run began with"
        if not self.subject.changes and None not in (first, now) and first != now and note not in self.report.notes:
            self.report.notes.append(note)

    def _hear_row(self, row: Row) -> None:
        """Say at once where a re-run parts from the stored run: the end of a long one need not be waited for."""
        self._rows += 1
        self.listener.row(int(row["env_steps"]))
        if not self._said and self._rows <= len(self.subject.rows) and not self._rolls_back:
            first = compare_rows([self.subject.rows[self._rows - 1]], [row]).first
            if first is not None:
                self._said = True
                place = f"row {self._rows} at {first.env_steps:,} environment steps"
                self.listener.say(f"differs in {place}: {first.key}; going on to the end")

    @property
    def _rolls_back(self) -> bool:
        """Whether rows are taken back on the way, so that only those that remain can be compared."""
        return (self.subject.run.logs / "rollbacks.jsonl").exists()


def _pause(request: Request, subject: Subject) -> int:
    last = subject.end.env_steps - 1
    if request.resume_at == "random":
        # Up to the last row but one: rows are logged at cycle boundaries, so there is one to stop at.
        before_end = [int(row["env_steps"]) for row in subject.rows if row["env_steps"] < subject.end.env_steps]
        return random.Random(request.seed).randint(1, max([1, *before_end]))
    asked = int(request.resume_at or 0)
    if not 1 <= asked <= last:
        raise UserError(f"--resume-at {asked}: must lie within the run, from 1 to {last}")
    return asked


@contextmanager
def _temporary_folder(keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="etude-verify-"))
    try:
        yield folder
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _record(run: Run, report: Report) -> None:
    if report.outcome == "not comparable":
        return
    record: dict[str, Any] = {"version": 1, "when": datetime.now(UTC).isoformat(timespec="seconds"), **report.to_json()}
    del record["kept"]
    # The run may lie where nothing can be written; the verdict stands without a note.
    with contextlib.suppress(OSError):
        write_json_atomic(run.logs / "verified.json", record)

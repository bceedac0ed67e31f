"""Showing a plan, asking before money is spent, and doing it."""

from __future__ import annotations

import sys

from etude.cli.output import emit, note, say
from etude.errors import EtudeError, UserError
from etude.files.atomic import write_text_atomic
from etude.launching.job import Job
from etude.launching.launcher import SUBMITTED, Launch, Launcher, launch_folder, launches
from etude.launching.plan import Plan, carry_out, require_tools
from etude.runs.places import runs_option

_LIVING = ("waiting", "running", "starting", "ending")


def launch(launcher: Launcher, job: Job, *, dry: bool, yes: bool = False) -> int:
    """Start a job, or print with --dry exactly what would start it."""
    plan = launcher.start(job)
    if dry:
        emit(plan.text())
        return 0
    require_tools(plan)
    _refuse_twice(launcher, job)
    confirm(plan, yes=yes)
    outputs = carry_out(plan)
    identity = plan.identity or (outputs[-1].strip() if outputs else "")
    write_text_atomic(launch_folder(job.runs, job.name) / SUBMITTED, f"{identity or job.name}\n")
    say(f"launched {job.name}: {len(job.tasks)} {'task' if len(job.tasks) == 1 else 'tasks'} ({identity or launcher.backend})")
    where = runs_option(job.runs)
    for hint in plan.hints or (f"how they stand: etude launch status {job.name}{where}",):
        note(hint)
    return 0


def do(plan: Plan, *, dry: bool, yes: bool = True) -> int:
    """Carry out a plan of a launch that exists already, or print it."""
    if dry:
        emit(plan.text())
        return 0
    confirm(plan, yes=yes)
    for output in carry_out(plan):
        if output.strip():
            say(output.rstrip())
    for hint in plan.hints:
        note(hint)
    return 0


def confirm(plan: Plan, *, yes: bool) -> None:
    """Say what will be charged for, and go on only with consent."""
    if not plan.costs:
        return
    for line in plan.costs:
        note(line)
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError("this costs money, and nobody is here to be asked: look at it with --dry, then add --yes")
    note("go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was started")


def _refuse_twice(launcher: Launcher, job: Job) -> None:
    """A second launch of the same name goes on with the first one's runs: not while those still train."""
    earlier: Launch | None = next((each for each in launches(job.runs) if each.name == job.name), None)
    if earlier is None or earlier.identity is None:
        return
    if earlier.tasks != job.tasks or earlier.backend != launcher.backend:
        what = "other tasks were launched" if earlier.tasks != job.tasks else f"it was launched by {earlier.backend}"
        raise UserError(f"{job.name}: {what} under this name; choose another with --job-name")
    try:
        states = launcher.states(earlier)
    except EtudeError as error:
        raise EtudeError(f"whether {job.name} still runs can't be found out: {error}") from None
    living = [number for number, state in states.items() if state.startswith(_LIVING)]
    if living:
        where = runs_option(job.runs)
        raise UserError(
            f"{job.name} was launched already, and {len(living)} of its tasks wait or run "
            f"(`etude launch status {job.name}{where}`); --job-name starts another"
        )

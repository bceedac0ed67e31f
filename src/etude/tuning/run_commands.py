"""A trial's run on any machine: a command line of Etude, its variables and its log, found again by group and seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.runs.index import RunIndex
from etude.runs.indexed_run import IndexedRun
from etude.tuning.backend import Job, Needs


def train_command(job: Job, root: Path) -> list[str]:
    """Return what follows `etude` to begin a run."""
    return ["train", *job.arguments, f"--seed={job.seed}", f"--group={job.group}", *_options(job, root)]


def resume_command(job: Job, run: IndexedRun, words: Sequence[str], root: Path) -> list[str]:
    """Return what follows `etude` to go on with a run."""
    return ["resume", run.id, *words, *_options(job, root)]


def thread_variables(needs: Needs) -> dict[str, str]:
    """Return the variables that hold a run to its CPUs."""
    return {} if needs.cpus is None else {"OMP_NUM_THREADS": str(needs.cpus), "MKL_NUM_THREADS": str(needs.cpus)}


def log_of(job: Job, logs: Path) -> Path:
    """Return where a run's complaints go; the folder is made."""
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{job.group.replace('/', '-')}-s{job.seed}.txt"


def runs_of(jobs: Sequence[Job], root: Path) -> dict[tuple[str, int], IndexedRun]:
    """Return the runs that these jobs have so far, by their keys; the newest, where there are several."""
    if not root.is_dir():
        return {}
    wanted = {job.key for job in jobs}
    found: dict[tuple[str, int], IndexedRun] = {}
    for run in reversed(RunIndex(root).read().runs):
        if run.group is not None and run.seed is not None and (run.group, run.seed) in wanted:
            found[run.group, run.seed] = run
    return found


def _options(job: Job, root: Path) -> list[str]:
    pause = [] if job.pause_at is None else [f"--pause-at={job.pause_at}"]
    return [f"--runs={root}", "--quiet", *pause]

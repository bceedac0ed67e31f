"""SLURM: one sbatch script a launch, an array task a run; pre-empted or out of time, a run saves itself and is requeued."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from etude.errors import EtudeError, UserError
from etude.launching.exit_files import FOLDER as EXITS
from etude.launching.exit_files import exit_states
from etude.launching.job import Job, clock_time
from etude.launching.launcher import Launch, launch_folder, record_file
from etude.launching.plan import Command, File, Plan, captured
from etude.launching.task_script import check_words, one_line, task_table, verbatim

LARGEST_SCRIPT = 4 * 1024 * 1024
"""SLURM's own limit (max_script_size)."""
WARNING_S = 120
"""How long before its time limit a run is told to save itself."""
SHORTEST_S = 2 * WARNING_S

_STATES = {"PENDING": "waiting", "RUNNING": "running", "COMPLETING": "ending", "CONFIGURING": "starting"}
_WATCH = """
# Pre-empted or cancelled, SLURM itself sends SIGTERM to every process of the task: the training saves itself, and this shell
# only has to stay until it has. Shortly before the time limit SIGUSR1 comes to this shell alone: it passes the word on, once,
# and puts the task back into the queue, where --auto-resume goes on with the same run.
child= asked=
trap : TERM
trap 'asked=yes; [ -z "$child" ] || kill -TERM "$child"' USR1
"$@" &
child=$!
[ -z "$asked" ] || kill -TERM "$child"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?
if [ -n "$asked" ] && { [ "$code" = 130 ] || [ "$code" = 143 ]; }; then
  echo "out of time: back into the queue"
  exec scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
"""


@dataclass(frozen=True)
class SlurmLauncher:
    """Submits to the cluster that sbatch knows, whose nodes see this folder and these runs."""

    backend: ClassVar[str] = "slurm"

    python: tuple[str, ...]
    """The command of Etude on the nodes, such as (python, -m, etude)."""
    partition: str | None = None
    account: str | None = None
    lines: tuple[str, ...] = ()
    """More #SBATCH lines, verbatim."""
    setup: tuple[str, ...] = ()
    """Shell lines before the run, verbatim, such as `module load cuda`."""

    def start(self, job: Job) -> Plan:
        """Return the script and the command that submits it."""
        folder = launch_folder(job.runs, job.name)
        for path in (folder, job.folder):
            if re.search(r"[\n\\]", str(path)):
                raise UserError(f"{path}: SLURM can't write to a path with a backslash or a line break in it")
        script = File(folder / "job.sh", self.script(job))
        if len(script.text.encode()) > LARGEST_SCRIPT:
            raise UserError(
                f"{len(job.tasks)} tasks make a script of more than 4 MiB, which SLURM refuses; launch them in parts"
            )
        submit = (
            "sbatch",
            "--parsable",
            f"--chdir={job.folder}",
            f"--output={_literal(folder)}/logs/%a.log",
            str(script.path),
        )
        # sbatch makes no folder for the output: a task would fail before it could say so.
        return Plan((folder / "logs", folder / EXITS), (record_file(self, job), script), (Command(submit),))

    def script(self, job: Job) -> str:
        """Return the script of all tasks; SLURM_ARRAY_TASK_ID says which one it is."""
        tasks = [(*self.python, *task, f"--runs={job.runs}") for task in job.tasks]
        check_words(tasks)
        code = f"{shlex.quote(str(launch_folder(job.runs, job.name) / EXITS))}/$SLURM_ARRAY_TASK_ID"
        lines = ["#!/bin/bash", *(f"#SBATCH {line}" for line in self._directives(job)), ""]
        lines += [*verbatim(self.setup, "--setup"), *task_table(tasks, '"$SLURM_ARRAY_TASK_ID"'), f"rm -f {code}"]
        return "\n".join(lines) + _WATCH + f'echo "$code" > {code}\nexit "$code"\n'

    def _directives(self, job: Job) -> list[str]:
        limit = "" if job.at_once is None else f"%{job.at_once}"
        needs = job.resources
        lines = [f"--job-name={job.name}", f"--array=0-{len(job.tasks) - 1}{limit}", "--requeue", "--open-mode=append"]
        lines += [f"--partition={_plain(self.partition, '--partition')}"] if self.partition is not None else []
        lines += [f"--account={_plain(self.account, '--account')}"] if self.account is not None else []
        lines += [f"--cpus-per-task={needs.cpus}"] if needs.cpus is not None else []
        lines += [f"--gres=gpu:{needs.gpus}"] if needs.gpus else []
        lines += [f"--mem={needs.memory_mb}M"] if needs.memory_mb is not None else []
        if needs.seconds is not None:
            if needs.seconds < SHORTEST_S:
                raise UserError(f"--time {clock_time(needs.seconds)}: at least {SHORTEST_S // 60} minutes; "
                                f"a run is told to save itself {WARNING_S} s before the end")  # fmt: skip
            lines += [f"--time={clock_time(needs.seconds)}"]
        # Without a limit of its own the partition's counts, and this one with it.
        lines += [f"--signal=B:USR1@{WARNING_S}"]
        return [*lines, *(one_line(line.removeprefix("#SBATCH").strip(), "--sbatch") for line in self.lines)]

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask squeue; of tasks that have left the queue, their exit codes tell."""
        number = _job_id(launch)
        words = ("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", f"--jobs={number}")
        try:
            listed = captured(Command(words))
        except EtudeError as error:
            if "Invalid job id" not in str(error):
                raise
            listed = ""  # SLURM forgets jobs minutes after their end
        return exit_states(launch.path, len(launch.tasks)) | _queued(listed)

    def cancel(self, launch: Launch) -> Plan:
        """Return what cancels the whole array."""
        return Plan(commands=(Command(("scancel", _job_id(launch))),))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the log files, which lie on the file system that the nodes share."""
        tasks = range(len(launch.tasks)) if task is None else [task]
        files = [launch.path / "logs" / f"{number}.log" for number in tasks]
        # A task that waits has none yet; tail -F finds it when it begins.
        shown = [str(path) for path in files if follow or path.exists()]
        if not shown:
            raise UserError(f"{launch.name}: no task has begun yet; `etude launch status {launch.name}` says how they stand")
        return Plan(commands=(Command(("tail", *(["-F"] if follow else []), "-n", "40" if len(shown) > 1 else "+1", *shown)),))

    def sync(self, launch: Launch) -> Plan:
        """Return nothing: runs are written where they are read."""
        return Plan(hints=(f"runs of {launch.name} lie in {launch.runs}, on the file system that the nodes share",))


def _queued(listed: str) -> dict[int, str]:
    """Read squeue's lines: 17_3|PENDING|BeginTime."""
    states = {}
    for line in listed.splitlines():
        identity, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        index = identity.rpartition("_")[2]
        if index.isdigit() and state in _STATES:
            word = _STATES[state]
            states[int(index)] = f"{word} ({reason})" if word == "waiting" and reason not in ("None", "") else word
    return states


def _job_id(launch: Launch) -> str:
    # `sbatch --parsable` prints ID, or ID;CLUSTER.
    number = (launch.identity or "").partition(";")[0]
    if not number.isdigit():
        raise UserError(f"{launch.name} was never submitted; launch it again")
    return number


def _literal(path: Path) -> str:
    """A path in which SLURM finds no pattern of its own: %j, %a."""
    return str(path).replace("%", "%%")


def _plain(text: str, option: str) -> str:
    if not re.fullmatch(r"[\w.,:@+-]+", text, re.ASCII) or text.startswith("-"):
        raise UserError(f"{option} {text!r}: letters, digits and . , : @ + - _ only")
    return text

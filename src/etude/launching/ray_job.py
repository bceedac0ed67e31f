"""Ray: an existing cluster, by `ray job submit`; Ray waits for room, and runs tasks again that lost their machine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from etude.errors import UserError
from etude.launching.exit_files import states_of
from etude.launching.job import Job
from etude.launching.launcher import SUBMITTED, Launch, launch_folder, record_file
from etude.launching.plan import Command, Plan, captured
from etude.launching.ray_tasks import STORE_EVERY_S
from etude.launching.uploads import check_upload, restore, store

_ENTRY = ("python", "-m", "etude.launching.ray_tasks")
_UPLOADS = ("gs://", "s3://", "/")


@dataclass(frozen=True)
class RayLauncher:
    """Submits to a Ray cluster that runs already and whose machines have Etude."""

    backend: ClassVar[str] = "ray"

    address: str | None = None
    """Of the cluster's dashboard; None is $RAY_ADDRESS, as Ray reads it."""
    folder: str = "~/etude-runs"
    """Where runs land on the cluster's machines."""
    upload: str | None = None
    code: bool = True

    def start(self, job: Job) -> Plan:
        """Return the one submission; the tasks travel as a variable, which no shell reads."""
        if self.address is not None and not re.fullmatch(r"(https?|ray)://[\w.:/\[\]-]+", self.address, re.ASCII):
            raise UserError(f"--address {self.address}: such as http://HEAD:8265, the cluster's dashboard")
        if not re.fullmatch(r"[\w./~+-]+", self.folder, re.ASCII):
            raise UserError(f"--remote {self.folder!r}: a folder of letters, digits and . _ - + / ~")
        if self.upload is not None:
            check_upload(self.upload, _UPLOADS)
        tasks = ray_tasks(job, folder="", runs=self.folder, upload=self.upload)
        environment: dict[str, Any] = {"env_vars": {"ETUDE_TASKS": json.dumps(tasks)}}
        identity = next_identity(job)
        words = ["ray", "job", "submit", *self._address(), "--no-wait", "--submission-id", identity]
        if self.code:
            words += ["--working-dir", str(job.folder)]
            if job.runs.is_relative_to(job.folder):
                environment["excludes"] = [f"/{job.runs.relative_to(job.folder)}"]
        words += ["--runtime-env-json", json.dumps(environment), "--", *_ENTRY]
        return Plan((), (record_file(self, job),), (Command(tuple(words)),), identity=identity)

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask Ray for the job, and its log for the tasks that have ended."""
        said = captured(self._job("status", launch))
        return task_states(said, captured(self._job("logs", launch)), len(launch.tasks))

    def cancel(self, launch: Launch) -> Plan:
        """Return what stops the job."""
        return Plan(commands=(self._job("stop", launch),))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the job's log, in which all tasks speak."""
        return Plan(commands=(self._job("logs", launch, *(["--follow"] if follow else [])),))

    def sync(self, launch: Launch) -> Plan:
        """Return what brings runs here from where they are kept."""
        return sync_plan(
            launch, self.upload, f"runs lie in {self.folder} on the cluster's machines; --upload keeps them elsewhere"
        )

    def _address(self) -> list[str]:
        return [] if self.address is None else ["--address", self.address]

    def _job(self, verb: str, launch: Launch, *options: str) -> Command:
        return Command(("ray", "job", verb, *self._address(), *options, identity_of(launch)))


def ray_tasks(job: Job, *, folder: str, runs: str, upload: str | None) -> dict[str, Any]:
    """Return what `etude.launching.ray_tasks` reads."""
    tasks = []
    for number, words in enumerate(job.tasks):
        # Each its own folder: two machines never write to one.
        place = f"{runs}/{job.name}/{number}" if upload else runs
        url = None if upload is None else f"{upload}/{job.name}/{number}"
        # A run that comes back from the bucket was signed on a machine that is gone; it is the user's own all the same.
        trusted = ["--trust"] if upload is not None and words[0] == "train" and "--trust" not in words else []
        commands = {"store": [] if url is None else store(place, url), "restore": [] if url is None else restore(url, place)}
        tasks.append({"words": [*words, *trusted], "folder": folder, "runs": place, "every_s": STORE_EVERY_S, **commands})
    needs = job.resources
    return {"cpus": needs.cpus or 1, "gpus": needs.gpus, "memory_mb": needs.memory_mb, "tasks": tasks}


def next_identity(job: Job) -> str:
    """Return a submission id that is new: Ray never takes one twice."""
    try:
        earlier = (launch_folder(job.runs, job.name) / SUBMITTED).read_text(encoding="utf-8").strip()
    except OSError:
        return f"{job.name}.1"
    return f"{job.name}.{int(earlier.rpartition('.')[2]) + 1}" if earlier.rpartition(".")[2].isdigit() else f"{job.name}.1"


def identity_of(launch: Launch) -> str:
    """Return the submission id, if it was submitted."""
    identity = launch.identity
    if identity is None or not re.fullmatch(r"[\w.-]+", identity, re.ASCII) or identity.startswith("-"):
        raise UserError(f"{launch.name} was never submitted; launch it again")
    return identity


def task_states(status: str, log: str, count: int) -> dict[int, str]:
    """Read `ray job status`, and the lines that `etude.launching.ray_tasks` wrote."""
    codes = {int(number): code for number, code in re.findall(r"^etude task (\d+): exit code (-?\d+)", log, re.MULTILINE)}
    states = states_of(codes, count)
    words = status.upper()
    now = "running" if "RUNNING" in words else "waiting" if "PENDING" in words else "gone"
    return {number: now if state == "gone" else state for number, state in states.items()}


def sync_plan(launch: Launch, upload: str | None, hint: str) -> Plan:
    """Return what brings the runs of every task here; one folder each there, side by side here."""
    if upload is None:
        return Plan(hints=(hint,))
    urls = [f"{upload}/{launch.name}/{number}" for number in range(len(launch.tasks))]
    commands = tuple(Command(tuple(words)) for url in urls for words in restore(url, str(launch.runs)))
    return Plan((launch.runs,), (), commands, hints=(f"runs of {launch.name} are in {launch.runs}",))

"""Docker: a container a task on this machine, as the user who launched it, with runs and the signing key of the host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from etude.errors import UserError
from etude.launching.exit_files import states_of
from etude.launching.job import Job
from etude.launching.launcher import SUBMITTED, Launch, launch_folder, record_file
from etude.launching.plan import Command, Plan, captured
from etude.launching.task_script import check_words

STOP_S = 120
"""How long a run may take to save itself before Docker kills it."""


@dataclass(frozen=True)
class DockerLauncher:
    """Starts containers of an image that has Etude, such as the one of docker/Dockerfile."""

    backend: ClassVar[str] = "docker"

    image: str = "etude"
    environment: tuple[str, ...] = ()
    """Names of variables to pass on; their values are Docker's to read, and stand nowhere."""
    code: bool = True

    def start(self, job: Job) -> Plan:
        """Return a `docker run` for each task; of a launch that ended, what starts its containers again."""
        if not re.fullmatch(r"[a-z0-9][\w./:@-]*", self.image, re.ASCII):
            raise UserError(f"--image {self.image!r}: the name of an image, such as etude or etude:gpu")
        for name in self.environment:
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                raise UserError(f"--env {name!r}: the name of a variable, without its value")
        check_words(job.tasks)
        if job.at_once is not None or job.resources.seconds is not None:
            raise UserError("Docker has neither a queue nor a clock: leave out --at-once and --time")
        names = [f"{job.name}-{number}" for number in range(len(job.tasks))]
        data = _data_folder()
        if (launch_folder(job.runs, job.name) / SUBMITTED).exists():
            commands = [Command(("docker", "start", *names))]
        else:
            commands = [Command(self._run(job, number, name, data)) for number, name in enumerate(names)]
        return Plan((job.runs, data), (record_file(self, job),), tuple(commands), identity=job.name)

    def _run(self, job: Job, number: int, name: str, data: Path) -> tuple[str, ...]:
        needs = job.resources
        words = ["docker", "run", "--detach", "--init", f"--name={name}", f"--label=etude.launch={job.name}"]
        words += [f"--stop-timeout={STOP_S}", f"--user={os.getuid()}:{os.getgid()}"]
        words += [f"--mount={_bind(job.runs, '/runs')}", f"--mount={_bind(data, '/data/etude')}", "--env=XDG_DATA_HOME=/data"]
        words += [f"--mount={_bind(job.folder, '/work')}", "--workdir=/work"] if self.code else []
        words += [f"--env={name}" for name in self.environment]
        words += [f"--cpus={needs.cpus}"] if needs.cpus is not None else []
        words += [f"--memory={needs.memory_mb}m"] if needs.memory_mb is not None else []
        if needs.gpus:
            devices = ",".join(str(number * needs.gpus + index) for index in range(needs.gpus))
            words += ["--gpus", f'"device={devices}"']
        return (*words, self.image, "etude", *job.tasks[number], "--runs=/runs")

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask Docker for the containers of this launch."""
        form = "{{.Names}}|{{.State}}|{{.Status}}"
        words = ("docker", "ps", "--all", f"--filter=label=etude.launch={launch.name}", f"--format={form}")
        codes, living = {}, {}
        for line in captured(Command(words)).splitlines():
            name, _, rest = line.partition("|")
            number = name.removeprefix(f"{launch.name}-")
            state, _, status = rest.partition("|")
            if number.isdigit():
                code = re.search(r"\((\d+)\)", status) if state == "exited" else None
                codes[int(number)] = code[1] if code else ""
                living[int(number)] = state == "running"
        states = states_of(codes, len(launch.tasks))
        return {number: "running" if living.get(number) else state for number, state in states.items()}

    def cancel(self, launch: Launch) -> Plan:
        """Return what stops the containers."""
        names = [f"{launch.name}-{number}" for number in range(len(launch.tasks))]
        return Plan(commands=(Command(("docker", "stop", f"--time={STOP_S}", *names)),))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the output of one container, or of each in turn."""
        if follow and task is None and len(launch.tasks) > 1:
            raise UserError("--follow: of several tasks, name one with --task")
        tasks = range(len(launch.tasks)) if task is None else [task]
        options = ["--follow"] if follow else ["--tail=40"]
        return Plan(commands=tuple(Command(("docker", "logs", *options, f"{launch.name}-{number}")) for number in tasks))

    def sync(self, launch: Launch) -> Plan:
        """Return nothing: runs are written to this disk."""
        return Plan(hints=(f"runs of {launch.name} lie in {launch.runs}",))


def _bind(source: Path, target: str) -> str:
    """Return a bind mount; Docker reads it as a line of CSV."""
    text = str(source)
    field = f"source={text}"
    if re.search(r'[,"\n\r]', text):
        quoted = field.replace('"', '""')
        field = f'"{quoted}"'
    return f"type=bind,{field},target={target}"


def _data_folder() -> Path:
    """Where the key lies that signs the user's runs: with it, runs of containers are the user's own here too."""
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "etude"

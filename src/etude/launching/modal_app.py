"""Modal: an app file that runs every task in a container of its own, on a volume that keeps runs when one is taken away."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from etude.errors import UserError
from etude.launching.job import Job
from etude.launching.launcher import Launch, launch_folder, record_file
from etude.launching.plan import Command, File, Plan, captured

LONGEST_S = 24 * 3600
"""Modal's own limit for one call."""
SHORTEST_S = 600
_WARNING_S = 120

_APP = '''"""Written by `etude launch modal`: a container a task. Taken away or out of time, it goes on in another."""

import json
import signal
import subprocess
import sys

import modal

FACTS = json.loads({facts})

image = modal.Image.debian_slim(python_version="3.12")
if FACTS["source"] is not None:
    image = image.add_local_dir(FACTS["source"], "/etude-src", copy=True, ignore=FACTS["ignore"])
    image = image.run_commands("python -m pip install -c /etude-src/constraints.txt /etude-src")
else:
    image = image.pip_install("etude==" + FACTS["version"])
if FACTS["setup"]:
    image = image.run_commands(*FACTS["setup"])
if FACTS["folder"] is not None:
    image = image.add_local_dir(FACTS["folder"], "/code", ignore=FACTS["ignore"])

app = modal.App(FACTS["name"], image=image)
runs = modal.Volume.from_name(FACTS["volume"], create_if_missing=True)


@app.function(
    volumes={{"/runs": runs}},
    secrets=[modal.Secret.from_name(name) for name in FACTS["secrets"]],
    cpu=FACTS["cpus"],
    memory=FACTS["memory_mb"],
    gpu=FACTS["gpu"],
    timeout=FACTS["seconds"],
    retries=modal.Retries(max_retries=10, backoff_coefficient=1.0, initial_delay=1.0),
    single_use_containers=True,
)
def task(number):
    """Run one command line of Etude; --auto-resume goes on with what an earlier container has left in the volume."""
    runs.reload()
    words = [sys.executable, "-m", "etude", *FACTS["tasks"][number], "--runs=/runs"]
    process = subprocess.Popen(words, cwd="/code" if FACTS["folder"] is not None else "/", stdin=subprocess.DEVNULL)
    try:
        code = process.wait(FACTS["seconds"] - FACTS["warning_s"])
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        # Modal interrupts a container that is taken away; shortly before the time limit it is ended from here.
        process.send_signal(signal.SIGTERM)
        process.wait()
        runs.commit()
        raise
    runs.commit()
    print(f"etude task {{number}}: exit code {{code}}", flush=True)
    return code


@app.local_entrypoint()
def main():
    """Start every task and leave."""
    for number in range(len(FACTS["tasks"])):
        task.spawn(number)
'''


@dataclass(frozen=True)
class ModalLauncher:
    """Runs tasks on Modal, by the account that `modal setup` has made known."""

    backend: ClassVar[str] = "modal"

    source: str | None
    version: str
    accelerator: str | None = None
    volume: str = "etude-runs"
    secrets: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    code: bool = True

    def start(self, job: Job) -> Plan:
        """Return the app file and the command that runs it."""
        for option, text in {"--volume": self.volume, **{f"--secret {each}": each for each in self.secrets}}.items():
            if not re.fullmatch(r"[\w.-]+", text, re.ASCII) or text.startswith("-"):
                raise UserError(f"{option} {text!r}: letters, digits and . _ - only")
        if job.resources.gpus and (self.accelerator is None or not re.fullmatch(r"[\w-]+", self.accelerator, re.ASCII)):
            raise UserError(f"--gpus {job.resources.gpus}: say which, such as --accelerator A10")
        app = File(launch_folder(job.runs, job.name) / "app.py", self.app(job))
        command = Command(("modal", "run", "--detach", str(app.path)))
        return Plan((), (record_file(self, job), app), (command,), self._costs(job), identity=job.name)

    def app(self, job: Job) -> str:
        """Return the file; what is of the user stands in it as one text of JSON, and is never code."""
        needs = job.resources
        seconds = needs.seconds or LONGEST_S
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise UserError(f"--time {seconds} s: Modal runs a call for at most 24 h, and Etude asks for at least 10 minutes")
        if job.at_once is not None:
            raise UserError(f"--at-once {job.at_once}: Modal starts as many containers as your account may have")
        ignore = ["**/.git", "**/.venv", "**/__pycache__", "**/.env*"]
        if job.runs.is_relative_to(job.folder):
            ignore.append(f"{job.runs.relative_to(job.folder)}/**")
        facts: dict[str, Any] = {
            "name": job.name,
            # In a new container the key is another that signs runs; those of the volume are the user's own all the same.
            "tasks": [[*task, *(["--trust"] if task[0] == "train" and "--trust" not in task else [])] for task in job.tasks],
            "source": self.source,
            "version": self.version,
            "folder": str(job.folder) if self.code else None,
            "ignore": ignore,
            "setup": list(self.setup),
            "volume": self.volume,
            "secrets": list(self.secrets),
            "cpus": float(needs.cpus) if needs.cpus is not None else None,
            "memory_mb": needs.memory_mb,
            "gpu": f"{self.accelerator}:{needs.gpus}" if needs.gpus else None,
            "seconds": seconds,
            "warning_s": _WARNING_S,
        }
        return _APP.format(facts=_literal(json.dumps(facts, indent=1)))

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask Modal whether the app runs; of single tasks it tells in its log."""
        listed = captured(Command(("modal", "app", "list", "--json")))
        try:
            apps = [app for app in json.loads(listed) if launch.name in app.values()]
        except (ValueError, AttributeError):
            raise UserError(
                "`modal app list --json` said something that can't be read; look at https://modal.com/apps"
            ) from None
        alive = any("stopped" not in str(app.get("State", "")).lower() for app in apps)
        return dict.fromkeys(range(len(launch.tasks)), "running" if alive else "gone")

    def cancel(self, launch: Launch) -> Plan:
        """Return what stops the app."""
        return Plan(commands=(Command(("modal", "app", "stop", launch.name)),))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the app's log."""
        return Plan(commands=(Command(("modal", "app", "logs", launch.name)),))

    def sync(self, launch: Launch) -> Plan:
        """Return what brings the volume's runs here."""
        command = Command(("modal", "volume", "get", "--force", self.volume, "/", f"{launch.runs}/"))
        return Plan((launch.runs,), (), (command,), hints=(f"runs of {launch.name} are in {launch.runs}",))

    def _costs(self, job: Job) -> tuple[str, ...]:
        needs = job.resources
        gpus = f", {needs.gpus} {self.accelerator}" if needs.gpus else ""
        hours = (needs.seconds or LONGEST_S) / 3600
        return (
            f"modal: {len(job.tasks)} containers of {needs.cpus or 'the default'} cores{gpus}, each up to {hours:g} h, "
            "started again up to 10 times",
        )


def _literal(text: str) -> str:
    """Return a Python literal of many lines, in which nothing can end the text but its end."""
    return "(\n" + "".join(f"    {line + chr(10)!r}\n" for line in text.splitlines()) + ")"

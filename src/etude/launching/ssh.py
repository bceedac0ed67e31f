"""ssh: one folder on another machine, a script in it that runs the tasks detached, and runs brought back by rsync or tar."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from etude.errors import EtudeError, UserError
from etude.launching.exit_files import states_of
from etude.launching.job import Job
from etude.launching.launcher import Launch, launch_folder, record_file
from etude.launching.own_files import own_files
from etude.launching.plan import Command, File, Plan, captured
from etude.launching.remote_script import remote_script

VANISHED = 24
"""rsync's exit code when a file was gone before it could be copied: a checkpoint that made room for a newer one."""


@dataclass(frozen=True)
class SshLauncher:
    """Runs tasks on a machine that ssh reaches and that has Etude installed."""

    backend: ClassVar[str] = "ssh"

    host: str
    """[USER@]HOST, or a name of ssh's own config."""
    folder: str
    """On that machine; relative to the home folder there."""
    python: str = "python3"
    setup: tuple[str, ...] = ()
    port: int | None = None
    config: str | None = None
    """Another config file for ssh."""
    copy: str = "rsync"
    code: bool = True

    def start(self, job: Job) -> Plan:
        """Return what copies the user's files and the script there, checks that Etude is there, and starts it detached."""
        self._check()
        here = launch_folder(job.runs, job.name)
        script = File(here / "job.sh", remote_script(job, python=self.python, setup=self.setup))
        names = own_files(job.folder, but=job.runs) if self.code else []
        commands = [self._remote("mkdir", "-p", *(f"{self.folder}/{name}" for name in ("code", "runs", "logs", "exit")))]
        if names:
            commands.append(self._send(job.folder, f"{self.folder}/code", names))
        commands += [self._send(here, self.folder, ["job.sh"]), self._script("check"), self._script("start")]
        return Plan((), (record_file(self, job), script), tuple(commands))

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask the script there."""
        lines = captured(self._script("status")).splitlines()
        alive = "alive" in lines
        told = dict(line.split(" ", 1) for line in lines if re.fullmatch(r"\d+ \d*", line))
        codes = {int(number): code for number, code in told.items() if code}
        states = states_of(codes, len(launch.tasks))
        for number, state in states.items():
            if state == "gone" and alive:
                states[number] = "running" if str(number) in told else "waiting"
        return states

    def cancel(self, launch: Launch) -> Plan:
        """Return what tells every process there to save itself and stop."""
        return Plan(commands=(self._script("stop"),))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the log files there."""
        tasks = range(len(launch.tasks)) if task is None else [task]
        files = [f"{self.folder}/logs/{number}.log" for number in tasks]
        return Plan(commands=(self._remote("tail", *(["-F"] if follow else []), "-n", "40", *files),))

    def sync(self, launch: Launch) -> Plan:
        """Return what brings runs and logs here.

        Checkpoints first, all else after them: of a run that goes on meanwhile, the rows that a checkpoint counts on are then
        among those that follow it, and the copy can be resumed. Nothing here is ever deleted.
        """
        logs = launch.path / "logs"
        runs, folder = launch.runs, self.folder
        if self.copy == "tar":
            target = ("tar", "--no-same-owner", "-xf", "-", "-C")
            parts = [("checkpoints", runs), ("rest", runs), ("logs", logs)]
            commands = [Command(self._script("pack", part).words, (*target, str(place))) for part, place in parts]
        else:
            checkpoints = ("--exclude=/*/checkpoints/.*", "--include=/*/", "--include=/*/checkpoints/***", "--exclude=*")
            rest = ("--exclude=/.*", "--exclude=/@*", "--exclude=/*/checkpoints/")
            commands = [
                self._fetch(f"{folder}/runs", runs, *checkpoints),
                self._fetch(f"{folder}/runs", runs, *rest),
                self._fetch(f"{folder}/logs", logs),
            ]
        return Plan((runs, logs), (), tuple(commands), hints=(f"runs of {launch.name} are in {runs}",))

    def _check(self) -> None:
        if not re.fullmatch(r"[\w.@:\[\]%+-]+", self.host, re.ASCII) or self.host.startswith("-"):
            raise UserError(f"{self.host!r}: a host is written HOST or USER@HOST")
        if not re.fullmatch(r"[\w./+-]+", self.folder, re.ASCII) or self.folder.startswith("-") or self.folder.strip("/") == "":
            raise UserError(f"--remote {self.folder!r}: a folder of letters, digits and . _ - + / (relative to the home there)")
        if self.config is not None and re.search(r"['\"\s]", self.config):
            raise UserError(f"--ssh-config {self.config!r}: rsync can't be told a path with spaces or quotes")
        if not self.python or "\0" in self.python:
            raise UserError("--python: the path of an interpreter")

    def _ssh(self) -> list[str]:
        words = ["ssh"]
        words += [] if self.config is None else ["-F", self.config]
        words += [] if self.port is None else ["-p", str(self.port)]
        # A machine that vanished ends a command instead of hanging it.
        return [*words, "-o", "ServerAliveInterval=15"]

    def _remote(self, *words: str) -> Command:
        # ssh hands one text to the shell there: it has to be quoted for that shell.
        return Command((*self._ssh(), "--", self.host, shlex.join(words)))

    def _script(self, *words: str) -> Command:
        return self._remote("bash", f"{self.folder}/job.sh", *words)

    def _send(self, folder: Path, target: str, names: list[str]) -> Command:
        listed = b"".join(os.fsencode(name) + b"\0" for name in names)
        if self.copy == "tar":
            pack = ("tar", "-C", str(folder), "--null", "--no-recursion", "-cf", "-", "-T", "-")
            return Command(pack, self._remote("tar", "--no-same-owner", "-xf", "-", "-C", target).words, listed)
        words = ("rsync", "-rlptz", "--from0", "--files-from=-", "-e", " ".join(self._ssh()))
        return Command((*words, f"{folder}/", f"{self._rsync_host()}:{target}/"), None, listed)

    def _fetch(self, source: str, target: Path, *rules: str) -> Command:
        words = ("rsync", "-rlptz", *rules, "-e", " ".join(self._ssh()), f"{self._rsync_host()}:{source}/", f"{target}/")
        return Command(words, allowed=(0, VANISHED))

    def _rsync_host(self) -> str:
        # An IPv6 address has colons of its own.
        user, at, host = self.host.rpartition("@")
        return f"{user}{at}[{host}]" if host.count(":") > 1 and not host.startswith("[") else self.host


def explain(error: EtudeError, launcher: SshLauncher) -> EtudeError:
    """Say the way out where rsync or Etude is missing on the other side."""
    said = str(error)
    if "rsync: command not found" in said or "rsync: not found" in said:
        return UserError(f"{launcher.host} has no rsync: install it there, or add --copy tar")
    return error

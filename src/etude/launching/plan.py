"""Exact files and commands: shown by --dry, and carried out as they were shown."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from etude.errors import EtudeError, MissingPackageError, UserError
from etude.files.atomic import write_bytes_atomic

_WAYS_OUT = {
    "sbatch": "run this where SLURM's commands are, on the cluster's login node",
    "squeue": "run this where SLURM's commands are, on the cluster's login node",
    "scancel": "run this where SLURM's commands are, on the cluster's login node",
    "ssh": "install OpenSSH's client (Debian: apt install openssh-client)",
    "rsync": "install it (Debian: apt install rsync), or add --copy tar",
    "tar": "install it (Debian: apt install tar)",
    "ray": "pip install 'ray[default]', or -e '.[ray]' from a checkout",
    "modal": "pip install modal, then `modal setup`",
    "docker": "install Docker Engine, see https://docs.docker.com/engine/install",
    "gcloud": "install the Google Cloud CLI",
    "aws": "install the AWS CLI",
}


@dataclass(frozen=True)
class File:
    """A file to be written."""

    path: Path
    text: str


@dataclass(frozen=True)
class Command:
    """A program with its arguments; no shell of this machine reads it."""

    words: tuple[str, ...]
    into: tuple[str, ...] | None = None
    """A second program that reads what the first one writes."""
    input: bytes | None = None
    """What the program reads."""
    allowed: tuple[int, ...] = (0,)
    """The exit codes that mean success."""

    def text(self) -> str:
        """Return it as a shell would be told."""
        joined = shlex.join(self.words)
        return joined if self.into is None else f"{joined} | {shlex.join(self.into)}"

    @property
    def programs(self) -> list[str]:
        """What has to be installed for it."""
        return [self.words[0], *(self.into or ())[:1]]


@dataclass(frozen=True)
class Plan:
    """What will be done, all of it."""

    folders: tuple[Path, ...] = ()
    files: tuple[File, ...] = ()
    commands: tuple[Command, ...] = ()
    costs: tuple[str, ...] = ()
    """Machines that somebody is charged for; asks for consent."""
    hints: tuple[str, ...] = ()
    """What to do next, said afterwards."""
    identity: str | None = None
    """What the tool will call it; None is what the last command prints."""

    def text(self) -> str:
        """Return it as --dry shows it: each file whole, each command as typed."""
        parts = [f"# cost: {line}\n" for line in self.costs]
        parts += [f"### folder {folder}\n" for folder in self.folders]
        parts += [f"### file {file.path}\n{file.text}{'' if file.text.endswith(chr(10)) else chr(10)}" for file in self.files]
        for command in self.commands:
            # What a command reads is a list of names, each ended by a NUL.
            names = [] if command.input is None else command.input.decode(errors="replace").split("\0")[:-1]
            given = "".join(f"# reads {shlex.quote(name)}\n" for name in names)
            parts.append(f"### command\n{given}{command.text()}\n")
        return "\n".join(parts)


def require_tools(plan: Plan) -> None:
    """Find out before anything is done that a program is missing."""
    for program in dict.fromkeys(name for command in plan.commands for name in command.programs):
        if shutil.which(program) is None:
            raise missing_tool(program)


def missing_tool(program: str) -> MissingPackageError:
    """Return the error for a program that is not installed, with the way out."""
    return MissingPackageError(f"`{program}` is not installed here: {_WAYS_OUT.get(program, 'install it')}")


def carry_out(plan: Plan, *, on_output: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write the files and run the commands, in order; returns what each command printed.

    The first command that fails ends it, with its last words.
    """
    require_tools(plan)
    for folder in plan.folders:
        _make_folder(folder)
    for file in plan.files:
        _make_folder(file.path.parent)
        try:
            write_bytes_atomic(file.path, file.text.encode())
        except OSError as error:
            raise UserError(f"{file.path}: {error.strerror or error}") from None
    outputs = []
    for command in plan.commands:
        output = captured(command)
        on_output(output)
        outputs.append(output)
    return outputs


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}") from None


def captured(command: Command) -> str:
    """Run a command and return what it printed; an exit code that it must not have is an error with its last words."""
    with tempfile.TemporaryFile() as errors:
        done, code = _run(command, errors, subprocess.PIPE)
        errors.seek(0)
        said = (errors.read().decode(errors="replace") or done).strip().splitlines()
    if code not in command.allowed:
        raise EtudeError(f"`{command.words[0]}` failed with exit code {code}: {' '.join(said[-3:]) or 'it said nothing'}")
    return done


def streamed(command: Command) -> int:
    """Run a command whose output is for the user to watch; returns its exit code."""
    try:
        return _run(command, None, None)[1]
    except KeyboardInterrupt:
        return 130


def _run(command: Command, errors: IO[bytes] | None, output: int | None) -> tuple[str, int]:
    given = subprocess.DEVNULL if command.input is None else subprocess.PIPE
    first_output = output if command.into is None else subprocess.PIPE
    try:
        first = subprocess.Popen(command.words, stdin=given, stdout=first_output, stderr=errors)
        if command.into is None:
            printed, _ = first.communicate(command.input)
            return (printed or b"").decode(errors="replace"), first.returncode
        second = subprocess.Popen(command.into, stdin=first.stdout, stdout=output, stderr=errors)
    except FileNotFoundError as error:
        raise missing_tool(str(error.filename)) from None
    assert first.stdout is not None
    first.stdout.close()  # or the first would never hear that the second has ended
    if first.stdin is not None and command.input is not None:
        with contextlib.suppress(BrokenPipeError):  # its exit code says why
            first.stdin.write(command.input)
            first.stdin.close()
    printed, _ = second.communicate()
    return (printed or b"").decode(errors="replace"), first.wait() or second.returncode

"""A Python program that is a fork instead of a new one: what is imported is there already, three seconds less.

For commands of ours that would start a program anew; that they really do is tested where it matters, once. The forks are of
`tests.nursery`, which has imported Etude and done nothing else, so that they are as fresh as new programs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.nursery import NUMBER, become, send

address = ""
"""Where the nursery listens; empty until the first program is asked for."""
in_a_program = False
"""Whether this is a fork of the nursery: as fresh as that, it starts programs by forks of itself, which are its children."""
_forking: dict[str, bool] = {}
"""Modules whose programs are forks, here and in programs that start programs."""
_REPOSITORY = Path(__file__).resolve().parents[1]
_nursery: subprocess.Popen[bytes] | None = None


def _connect() -> socket.socket:
    """A connection to the nursery, which is started first if there is none."""
    global address, _nursery
    if not address:
        address = os.path.join(tempfile.mkdtemp(prefix="etude-nursery-"), "socket")
        path = os.pathsep.join([str(_REPOSITORY), str(_REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
        # It ends when this process does, whatever ends that: then its stdin does.
        _nursery = subprocess.Popen(
            [sys.executable, "-c", f"from tests.nursery import main; main({address!r})"],
            cwd=_REPOSITORY,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
        )
        while not os.path.exists(address):
            assert _nursery.poll() is None, "the nursery of test programs ended as it began"
            time.sleep(0.05)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


class ForkedProgram:
    """Stands in for `subprocess.Popen` of `python SCRIPT …` or `python -m MODULE …`, as far as Etude uses it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: Any = None,
        stderr: Any = None,
        pass_fds: Iterable[int] = (),
        start_new_session: bool = False,
    ) -> None:
        self.returncode: int | None = None
        request = {
            "words": [str(word) for word in command[1:]],
            "cwd": os.fspath(cwd) if cwd is not None else os.getcwd(),
            "env": dict(os.environ if env is None else env),
            "numbers": [0, 1, 2, *pass_fds],
            "start_new_session": start_new_session,
            "forking": list(_forking),
        }
        with open(os.devnull, "r+b", buffering=0) as nothing:
            streams = [
                number if stream is None else nothing.fileno() if stream == subprocess.DEVNULL else stream.fileno()
                for number, stream in enumerate((stdin, stdout, stderr))
            ]
            self._connection = None if in_a_program else _connect()
            if self._connection is None:
                self.pid = _fork(request, [*streams, *pass_fds])
            else:
                send(self._connection, request, [*streams, *pass_fds])
                self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._collect(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        code = self._collect(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _collect(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._connection is None:
            self._collect_child(timeout)
        elif self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = self._number()
            self._connection.close()
        return self.returncode

    def _collect_child(self, timeout: float | None) -> None:
        deadline = time.monotonic() + (timeout or 0)
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            if time.monotonic() >= deadline:
                break
            time.sleep(0.01)

    def _number(self) -> int:
        assert self._connection is not None
        data = self._connection.recv(NUMBER.size, socket.MSG_WAITALL)
        assert len(data) == NUMBER.size, "the nursery of test programs has ended"
        return NUMBER.unpack(data)[0]


def _fork(request: dict[str, Any], descriptors: Sequence[int]) -> int:
    pid = os.fork()
    if pid == 0:
        become(request, [os.dup(descriptor) for descriptor in descriptors])
    return pid


def run_forked(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Stands in for `subprocess.run` of a Python program, its output captured as text."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        program = ForkedProgram(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=complained)
        try:
            code = program.wait(timeout)
        finally:
            program.kill()
        said.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(command, code, said.read(), complained.read())


def fork_instead(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what `module` starts by `subprocess.Popen` be a fork."""
    monkeypatch.setitem(_forking, module.__name__, True)
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProgram}))

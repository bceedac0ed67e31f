"""The processes that sample beside the learner, and what is said to them: trees of tensors and plain values, without pickle.

    learner ── a socket each ──┬─ sampler 0   copies 0 to 3, and a policy that acts in them
                               └─ sampler 1   copies 4 to 7

A sampler is a new interpreter in a session of its own: Ctrl-C reaches the learner alone. It answers one request after another,
and ends when the learner's end of its socket closes, whatever closed it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from etude.compute.wire import packed, unpacked
from etude.errors import EnvironmentFailureError, EtudeError, UserError

CLOSE_S = 5.0
"""How long samplers may take to close their environments before they are killed."""
_LENGTH = struct.Struct("<Q")
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import importlib; importlib.import_module(sys.argv[2]).main()"


class SamplerDiedError(Exception):
    """A sampler is gone, without a word."""


class Sampler:
    """One process, as the learner sees it."""

    def __init__(self, number: int, service: str) -> None:
        """`service` is the module whose `main` answers requests."""
        self.number, self._service = number, service
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._owner = os.getpid()

    def start(self) -> None:
        """Begin the process, or a new one in place of one that died."""
        self.end(0.0)
        self._link, theirs = socket.socketpair()
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with theirs:
            arguments = [json.dumps(sys.path), self._service, str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**threads, **os.environ},
            )

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request; its answer is the next that was not heard yet."""
        assert self._link is not None
        try:
            send(self._link, request)
        except OSError as error:
            raise SamplerDiedError from error

    def answer(self) -> Any:
        """Wait for the next answer; what the sampler raised is raised here."""
        assert self._link is not None
        try:
            told = receive(self._link)
        except (OSError, EOFError) as error:
            raise SamplerDiedError from error
        if "raised" in told:
            raise _error(told, self.number)
        return told["result"]

    def how_it_died(self) -> str:
        """Return what became of the process."""
        assert self._process is not None
        try:
            code = self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            return f"sampler {self.number} closed its connection"
        if code < 0:
            return f"sampler {self.number} was killed by {signal.Signals(-code).name}"
        return f"sampler {self.number} ended with exit code {code}"

    def end(self, grace_s: float = CLOSE_S) -> None:
        """Let the process close its environments, or kill it."""
        self.let_go()
        if self._process is not None:
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def let_go(self) -> None:
        """Close this end, which the process ends by."""
        if os.getpid() != self._owner:
            self._process = None  # this is a fork of the learner, which the process does not belong to
        elif self._link is not None:
            self._link.close()
        self._link = None

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid


def end_all(samplers: Sequence[Sampler]) -> None:
    """End samplers side by side."""
    deadline = time.monotonic() + CLOSE_S
    for sampler in samplers:
        sampler.let_go()
    for sampler in samplers:
        sampler.end(max(0.0, deadline - time.monotonic()))


def send(link: socket.socket, tree: dict[str, Any]) -> None:
    """Send a tree."""
    data = packed(tree)
    link.sendall(_LENGTH.pack(len(data)))
    link.sendall(data)


def receive(link: socket.socket) -> Any:
    """Return the next tree; EOFError when the other side is gone."""
    (size,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    return unpacked(_exactly(link, size))


def _exactly(link: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = link.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def _error(told: dict[str, Any], number: int) -> EtudeError:
    message, details = told["raised"], told["details"]
    if told["kind"] == "user":
        return UserError(message)
    if told["kind"] == "etude":
        return EtudeError(message)
    return EnvironmentFailureError(f"sampler {number}: {message}", details=details)

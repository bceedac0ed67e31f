"""A process that has imported what programs of ours need and done nothing else: test programs are forks of it.

Started once for each process that runs tests. A fork of the tests' own process would inherit its threads' locks without the
threads, its leftovers and its patches, and now and then wait for ever for one of them; here there is one thread, and nothing
has happened.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any, NoReturn

from etude.training.child_run import PARENT

PATIENCE_S = 240
"""After which a program says where it stands and ends: within the time that a test has."""
PRELOADED = (
    *("torch._dynamo", "hydra.core.override_parser.overrides_parser", "etude.cli", "etude.cli.train", "etude.cli.resume"),
    *("etude.training.session", "etude.training.assembly", "etude.learning.compiled", "etude.workflows.ppo"),
    *("etude.environments.families.classic_control", "etude.environments.native.classic"),
)
_ABOVE_ALL = 200
_LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!i")


def send(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Ask for a program; `descriptors` arrive in the same order."""
    text = json.dumps(request).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(text))], descriptors)
    connection.sendall(text)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, maxfds=64)
    left, text = _LENGTH.unpack(head)[0], b""
    while len(text) < left:
        more = connection.recv(left - len(text))
        if not more:
            raise ConnectionError("the request has no end")
        text += more
    return json.loads(text), descriptors


class Nursery:
    """Forks what it is asked for, says its number, and later its exit code.

    It ends with whoever holds its stdin, and what it forked ends with it.
    """

    def __init__(self, address: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{address}.new")
        self.listener.listen()
        os.rename(f"{address}.new", address)  # from then on it can be asked
        self.woken, self.waker = socket.socketpair()
        self.waker.setblocking(False)
        signal.set_wakeup_fd(self.waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.asked_by: dict[int, socket.socket] = {}
        """Who waits for each program that runs."""
        for source in (self.listener, self.woken, sys.stdin):
            self.selector.register(source, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until stdin ends."""
        try:
            while sys.stdin not in (ready := [key.fileobj for key, _ in self.selector.select()]):
                if self.woken in ready:
                    self.woken.recv(4096)
                if self.listener in ready:
                    connection = self.listener.accept()[0]
                    with contextlib.suppress(OSError, ValueError):  # who asked may have been killed as it asked
                        self._begin(connection)
                self._reap()
        finally:
            for pid in self.asked_by:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _begin(self, connection: socket.socket) -> None:
        request, descriptors = _receive(connection)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            self.selector.close()
            for own in (self.listener, self.woken, self.waker, connection, *self.asked_by.values()):
                own.close()
            become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.asked_by[pid] = connection
        connection.sendall(NUMBER.pack(pid))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                connection = self.asked_by.pop(pid)
                with contextlib.suppress(OSError):  # who asked may have ended
                    connection.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
                connection.close()


def become(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """In a fork: be the program that was asked for."""
    code = 1
    try:
        gc.freeze()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
        if request["start_new_session"]:
            os.setsid()
        _put_in_place(descriptors, request["numbers"])
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        random.seed()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        if PARENT in os.environ:
            os.environ[PARENT] = str(os.getppid())
        _end_if_it_hangs()
        code = _run(request["words"], request["forking"])
    except BaseException:  # noqa: BLE001 - nothing of the parent may go on here
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _put_in_place(descriptors: list[int], numbers: list[int]) -> None:
    """Give descriptors the numbers that they have for whoever asked; the first three are the streams."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE_ALL) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(high, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    _let_go_of_all_but(numbers)


def _let_go_of_all_but(numbers: list[int]) -> None:
    """A new program would not hold its parent's locks. The numbers stay taken: objects that are copies may close them yet."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # the number that listing the folder had
            os.fstat(number)
            if number not in (*numbers, nothing):
                os.dup2(nothing, number, inheritable=False)


def _end_if_it_hangs() -> None:
    """By a signal: what waits in a thread can't be put off in a fork of the fork, which has no such thread."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=sys.stderr, chain=True)
    signal.alarm(PATIENCE_S)


def _run(words: list[str], forking: list[str]) -> int:
    isolated = "-P" in words
    words = [word for word in words if word != "-P"]
    own = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if not isolated:
        is_script = words[0] not in ("-m", "-c")
        own.insert(0, os.path.dirname(os.path.abspath(words[0])) if is_script else os.getcwd())
    sys.path[:] = [*own, *sys.path]
    from tests import forked

    forked.in_a_program = True
    for name in forking:
        module: Any = importlib.import_module(name)
        module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": forked.ForkedProgram})
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main(address: str) -> None:
    """Import what programs will ask for, and wait for requests."""
    for name in PRELOADED:
        importlib.import_module(name)
    nursery = Nursery(address)
    sys.path[:] = [place for place in sys.path if place not in ("", os.getcwd())]
    nursery.serve()

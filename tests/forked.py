"""A Python program in a fork of the test's process instead of a new one: what is imported is there already, three seconds less.

For commands of ours that would start a program anew; that they really do is tested where it matters, once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import runpy
import signal
import stat
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch._dynamo  # noqa: F401 - whoever makes an optimiser imports it, in two seconds: once here, not in each fork

import etude.training.session  # noqa: F401 - likewise

_PATIENCE_S = 240


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns where there are threads; those of the test runner only wait
            try:
                self.pid = os.fork()
            except OSError:  # a test before left something larger than the memory there is, reserved and never used
                gc.collect()
                self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                # What the test's process left behind, such as closed environments in a cycle, is not to be ended from here.
                gc.freeze()
                if start_new_session:
                    os.setsid()
                _let_go_of_sockets({*pass_fds})
                self._become(cwd, env, {0: stdin, 1: stdout, 2: stderr})
                _end_if_it_hangs()
                code = _run(list(command[1:]))
            except BaseException:  # noqa: BLE001 - nothing of the test may go on here
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        return self._collect(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            return self._collect(0) or 0
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _collect(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    @staticmethod
    def _become(cwd: Any, env: Mapping[str, str] | None, streams: Mapping[int, Any]) -> None:
        for number, stream in streams.items():
            if stream is not None:
                descriptor = os.open(os.devnull, os.O_RDWR) if stream == subprocess.DEVNULL else stream.fileno()
                os.dup2(descriptor, number)
        # The test runner's own streams keep what was said until now, and would say it again.
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)


def _end_if_it_hangs() -> None:
    """Let this process say where it stands and end, within the time that a test has.

    By a signal: what waits in a thread can't be put off in a fork, which has no such thread.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=sys.stderr, chain=True)
    signal.alarm(_PATIENCE_S)


def _let_go_of_sockets(kept: set[int]) -> None:
    """Let go of the other processes' connections, as a new program would: who waits for their end shall see it.

    Their numbers stay taken: an object of the test's process that ends here closes its number, which no file of ours may have.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        descriptor = int(name)
        with contextlib.suppress(OSError):
            if descriptor not in kept and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor)


def _run(words: list[str]) -> int:
    words = [word for word in words if word != "-P"]
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def fork_instead(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what `module` starts by `subprocess.Popen` be a fork."""
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProgram}))

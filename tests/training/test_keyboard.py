"""Keys of a terminal: read one by one, the terminal always given back, and nothing taken where there is none."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.cli import run as command
from etude.runs.requests import read_events
from etude.runs.run import Run
from etude.training import attendant
from etude.training.keyboard import listening

PATIENCE_S = 60.0


class OnTerminal:
    """A fork of this process that is alone in the foreground of a terminal of its own."""

    def __init__(self, program: Callable[[], int]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            code = 70
            try:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
                    signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                code = program()
                sys.stdout.flush()
            finally:
                os._exit(code)
        self.said = b""
        self.begun_as = self.modes

    @property
    def modes(self) -> list[object]:
        return termios.tcgetattr(self.terminal)[:4]

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def wait_for(self, what: str | Callable[[], bool]) -> None:
        """Read what it says until it has said this, or until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not (what() if callable(what) else what.encode() in self.said):
            assert time.monotonic() < deadline, self.said[-2000:].decode(errors="replace")
            self._read()

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def wait(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.said[-2000:].decode(errors="replace")

    def _read(self) -> None:
        if select.select([self.terminal], [], [], 0.02)[0]:
            try:
                self.said += os.read(self.terminal, 65536)
            except OSError:  # its last process has gone
                time.sleep(0.02)


def read_keys(stops_at: str = "q") -> int:
    """A program that says each key it reads."""
    with listening() as keyboard:
        assert keyboard is not None
        print("ready", flush=True)
        while True:
            for key in keyboard.pressed():
                print(f"<{key}>", flush=True)
                if key == stops_at:
                    return 0
            time.sleep(0.01)


def test_keys_are_read_without_enter_and_echo_and_the_terminal_is_given_back() -> None:
    program = OnTerminal(read_keys)
    before = program.begun_as
    program.wait_for("ready")
    assert not program.echoes
    program.press("s")
    program.wait_for("<s>")
    program.press("\x1b[A")  # an arrow: no key of ours, and its letter is none
    program.press("e")
    program.wait_for("<e>")
    assert b"<A>" not in program.said
    program.press("q")
    assert program.wait() == 0
    assert program.modes == before


def as_job() -> int:
    """What a shell does with a program: a group of its own in the foreground, and the terminal back when it is stopped."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        while os.tcgetpgrp(0) != os.getpgrp():
            time.sleep(0.01)
        os._exit(read_keys())
    with contextlib.suppress(OSError):
        os.setpgid(job, job)
    os.tcsetpgrp(0, job)
    _, status = os.waitpid(job, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.tcsetpgrp(0, os.getpgrp())
    print(f"stopped, echo {bool(termios.tcgetattr(0)[3] & termios.ECHO)}", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])


def test_control_z_stops_with_the_terminal_given_back_and_takes_it_again() -> None:
    program = OnTerminal(as_job)
    program.wait_for("ready")
    program.wait_for(lambda: not program.echoes)
    program.press("\x1a")
    program.wait_for("stopped, echo True")
    program.press("\n")
    program.wait_for(lambda: not program.echoes)
    program.press("s")
    program.wait_for("<s>")
    program.press("q")
    assert program.wait() == 0
    assert program.echoes


def fail_while_listening() -> int:
    try:
        with listening():
            print("ready", flush=True)
            raise RuntimeError
    except RuntimeError:
        return 3


def test_an_exception_gives_the_terminal_back() -> None:
    program = OnTerminal(fail_while_listening)
    assert program.wait() == 3
    assert program.echoes


def test_a_pipe_is_not_listened_to(tmp_path: Path) -> None:
    read, write = os.pipe()
    with open(read) as stream, listening(stream) as keyboard:
        assert keyboard is None
    os.close(write)
    with open(tmp_path / "file", "w+") as stream, listening(stream) as keyboard:
        assert keyboard is None
    with listening(None if sys.stdin is None else sys.__stdin__) as keyboard:
        assert keyboard is None or os.isatty(0)


WORDS = ["training.total_steps=100000000", "evaluation.every_steps=0", "experiment.compile=off", "logging.every_steps=2048"]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_training_on_a_terminal_answers_its_keys(term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the live view, and with plain lines; the second SIGTERM of a run that is asked to stop finds the terminal whole."""
    monkeypatch.setenv("TERM", term)
    program = OnTerminal(lambda: command(["train", "CartPole-v1:ppo", *WORDS, f"--runs={tmp_path}"]))
    before = program.begun_as
    program.wait_for(attendant.HELP[:20])
    program.wait_for(lambda: not program.echoes)
    program.press("s")
    program.wait_for("saved")
    program.press("p")
    program.wait_for("paused")
    if term == "dumb":
        os.kill(program.pid, signal.SIGTERM)
        program.wait_for(lambda: program.echoes)
    else:
        program.press("q")
    assert program.wait() == 130
    assert program.modes == before
    (run,) = Run.list(tmp_path)
    assert run.status == "interrupted"
    assert [event["action"] for event in read_events(run)][:2] == ["save", "pause"]

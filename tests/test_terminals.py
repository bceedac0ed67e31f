"""A run is the same run on a terminal, in a pipe and in a notebook, also for an environment that reads global generators."""

from __future__ import annotations

import io
import os
import pty
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from etude.cli import run as command
from etude.config.compose import compose
from etude.orchestration.callbacks import Callback, Progress
from etude.runs.run import Run
from etude.training import session
from tests.runs_compared import assert_same_run, stopped_after

GAMBLING = """
import random
import gymnasium
import numpy as np
import torch

class Gambling(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def luck(self):
        return np.array([random.random() + np.random.rand() + torch.rand(1).item()], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.luck(), {}

    def step(self, action):
        luck = self.luck()
        return luck, float(luck[0]), bool(random.random() < 0.1), False, {}

gymnasium.register("Gambling-v0", Gambling)
"""
WORDS = ("training.total_steps=512", "algorithm.rollout_steps=32", "algorithm.epochs=1", "environment.num_envs=2",
         "evaluation.every_steps=256", "evaluation.episodes=2", "logging.every_steps=64")  # fmt: skip
SPEC = "gambling:Gambling-v0:ppo"


@pytest.fixture(autouse=True)
def gambling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "gambling.py").write_text(GAMBLING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    gymnasium.registry.pop("Gambling-v0", None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    """A stream whose writes draw, as the id of a message would."""

    def write(self, text: str) -> int:
        _draw()
        return super().write(text)


class Gambler(Callback):
    """Other people's code: it draws wherever it is called."""

    def on_start(self, progress: Progress) -> None:
        _draw()

    def on_evaluation_start(self, progress: Progress) -> None:
        _draw()

    def on_row(self, progress: Progress, row: Any) -> None:
        _draw()

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        _draw()


def _draw() -> None:
    random.random()
    np.random.rand()  # noqa: NPY002
    torch.rand(1)


@pytest.fixture(autouse=True)
def modules_put_back() -> Iterator[None]:
    """Other tests go on with the modules that they have imported."""
    before = dict(sys.modules)
    yield
    sys.modules.update(before)


def _forget_rich() -> None:
    """It draws from `random` when it is imported, which in a process of many tests it may have been long ago.

    Modules that hold something of it are forgotten with it: what the old rich makes, the new one can't print.
    """
    for name, module in list(sys.modules.items()):
        holds_rich = name.startswith("etude.telemetry.") and "Text" in vars(module)
        if name.split(".")[0] == "rich" or name.startswith("etude.telemetry.live") or holds_rich:
            del sys.modules[name]


def _train(root: Path, stream: Any, *, quiet: bool = False) -> Run:
    return session.train(compose(SPEC, words=WORDS), root=root, stream=stream, quiet=quiet).run


def test_a_terminal_a_pipe_and_a_notebook_give_the_same_run(tmp_path: Path) -> None:
    """Defect 13: drawing on a terminal moved Python's global generator, and the run with it."""
    piped = _train(tmp_path / "pipe", io.StringIO())
    _forget_rich()
    shown = _train(tmp_path / "terminal", terminal := Terminal())
    noted = _train(tmp_path / "notebook", Notebook())
    assert "\x1b[" in terminal.getvalue()
    assert_same_run(piped, shown)
    assert_same_run(piped, noted)


def test_stopped_and_resumed_on_a_terminal_equals_uninterrupted_in_a_pipe(tmp_path: Path) -> None:
    whole = _train(tmp_path / "whole", io.StringIO())
    _forget_rich()
    with stopped_after(3):
        run = _train(tmp_path / "cut", Terminal())
    assert run.status == "interrupted"
    _forget_rich()
    session.resume(run, stream=Terminal())
    assert_same_run(whole, run)


def test_callbacks_and_the_caller_of_a_loop_can_draw_without_being_noticed(tmp_path: Path) -> None:
    plain = _train(tmp_path / "plain", io.StringIO(), quiet=True)
    watched = session.start(compose(SPEC, words=WORDS), root=tmp_path / "watched", stream=io.StringIO(), quiet=True)
    watched.orchestrator.add_callback(Gambler())
    _draw()  # between the beginning of a run and its first step
    for _ in watched:
        _draw()
    assert_same_run(plain, watched.run)


def test_a_run_trained_on_a_terminal_is_verified(tmp_path: Path) -> None:
    """A pseudo-terminal, a process of its own, and the command that proves it."""
    code = f"import sys; from etude.cli import run; sys.exit(run({['train', SPEC, *WORDS, '--runs', 'runs']!r}))"
    main, side = pty.openpty()
    heard: list[bytes] = []
    listening = threading.Thread(target=_listen, args=(main, heard.append), daemon=True)
    listening.start()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run([sys.executable, "-c", code], stdin=side, stdout=side, stderr=side, env=environment, timeout=120)
    finally:
        os.close(side)
        listening.join(10)
        os.close(main)
    printed = b"".join(heard)
    assert done.returncode == 0, printed.decode(errors="replace")
    assert b"\x1b[J" in printed, "it was drawn on a terminal"
    assert command(["verify", "@last", "--runs", "runs"]) == 0


def _listen(descriptor: int, hear: Callable[[bytes], object]) -> None:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # nobody holds the other side any more
            return
        if not data:
            return
        hear(data)


def test_evaluations_on_request_depend_on_their_seed_alone(tmp_path: Path) -> None:
    from etude.using.evaluate import measure
    from etude.using.stored_policy import open_policy

    run = _train(tmp_path / "runs", io.StringIO(), quiet=True)
    (one,) = measure(open_policy(run, "last"), 3).values()
    _draw()
    (other,) = measure(open_policy(run, "last"), 3).values()
    assert one.returns.tolist() == other.returns.tolist()

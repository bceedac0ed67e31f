"""What can't be viewed is refused in a line that says the way out."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from etude.cli import run as command
from etude.runs.run import Run
from tests.runs_compared import train


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: True if name == "viser" else found(name, *rest))


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert command(["view", *words]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("etude: ")
    return last


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["quadruped-flat"], "--browser"),
        (["quadruped-flat"], "--video"),
        (["quadruped-flat:ppo"], "name the task alone, quadruped-flat"),
        (["quadruped-flat", "--follow"], "--follow is of a run"),
        (["quadruped-flat", "--checkpoint", "best"], "--checkpoint is of a run"),
        (["quadruped-flat", "--port", "80"], "--port is of the page"),
        (["quadruped-flat", "--speed", "0"], "must be above 0"),
        (["quadruped-flat", "--browser", "--port", "99999"], "from 0 to 65535"),
        (["nowhere.yaml", "--browser"], "no such file"),
        (["x", "--follow", "--checkpoint", "3"], "choose one"),
        (["quadruped-flat", "--browser", "environment.robot.nonsense=1"], "environment.robot.nonsense: unknown key"),
    ],
)
def test_a_wrong_request_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert says in refused(capsys, *words)


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "viser" else True)
    assert "pip install 'etude[viewer]'" in refused(capsys, "quadruped-flat", "--browser")


def test_a_port_that_is_taken_is_said_before_anything_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port}: Address already in use" in refused(capsys, "quadruped-flat", "--browser", "--port", port)


def test_runs_that_have_no_robot_or_no_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path, trained: Run) -> None:
    other = train("CartPole-v1:random", tmp_path / "others", "training.total_steps=100", "evaluation.episodes=1")
    at = ["--browser", "--port", "0"]
    assert "is of CartPole-v1, which is no robot" in refused(capsys, str(other.path), *at)
    assert "keeps its own settings" in refused(capsys, str(trained.path), "--act", "random", *at)
    assert "'77' not found" in refused(capsys, str(trained.path), "--checkpoint", "77", *at)
    for saved in trained.checkpoints().list():
        saved.path.rename(tmp_path / saved.name)
    assert "no checkpoints" in refused(capsys, str(trained.path), *at)
    assert "has no checkpoint, and is finished" in refused(capsys, str(trained.path), "--follow", *at)
    assert "not a run directory" in refused(capsys, str(tmp_path), *at)

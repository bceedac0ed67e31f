"""`etude launch docker` and `etude launch modal`: exact commands, an app file that is data and a few fixed lines of code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from tests.launching.conftest import HOSTILE, Stubs, assert_no_secret, dry_files

TRAIN = ("train", "CartPole-v1:ppo", "training.total_steps=600")


def test_docker_runs_each_task_as_the_user(stubs: Stubs, work: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("docker", "0a1b\n")
    words = ["launch", "docker", "--unchecked", "--job-name", "it", "--cpus", "2", "--memory", "2G", "--gpus", "2",
             "--env", "WANDB_API_KEY", *TRAIN, "--seed", "1,2", f"--name={HOSTILE[3]}"]  # fmt: skip
    assert etude([*words, "--dry"]) == 0
    shown = capsys.readouterr().out
    assert etude(words) == 0
    calls = stubs.calls("docker")
    assert len(calls) == 2
    assert calls[1] == [
        "run", "--detach", "--init", "--name=it-1", "--label=etude.launch=it", "--stop-timeout=120",
        f"--user={os.getuid()}:{os.getgid()}", f"--mount=type=bind,source={work}/runs,target=/runs",
        f"--mount=type=bind,source={home}/etude,target=/data/etude", "--env=XDG_DATA_HOME=/data",
        f"--mount=type=bind,source={work},target=/work", "--workdir=/work", "--env=WANDB_API_KEY", "--cpus=2",
        "--memory=2048m", "--gpus", '"device=2,3"', "etude", "etude", *TRAIN, f"--name={HOSTILE[3]}", "--auto-resume",
        "--seed=2", "--group=it", "--runs=/runs",
    ]  # fmt: skip
    for path, text in dry_files(shown).items():
        assert Path(path).read_text() == text
    assert_no_secret(work)
    stubs.add("docker", "it-0|exited|Exited (130) 2 minutes ago\nit-1|exited|Exited (0) 1 minute ago\n")
    assert etude(words) == 0
    assert stubs.calls("docker")[-1] == ["start", "it-0", "it-1"], "what was stopped goes on in its own container"
    capsys.readouterr()
    assert etude(["launch", "status"]) == 0
    shown = capsys.readouterr().out
    assert "0  interrupted" in shown
    assert "1  finished" in shown
    assert etude(["launch", "cancel", "it"]) == 0
    assert stubs.calls("docker")[-1] == ["stop", "--time=120", "it-0", "it-1"]
    assert etude(["launch", "logs", "it", "--task", "1", "--follow"]) == 0
    assert stubs.calls("docker")[-1] == ["logs", "--follow", "it-1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["docker", "--image", "-v/:/host"], "--image"),
        (["docker", "--env", "A=1"], "--env 'A=1'"),
        (["modal", "--gpus", "1"], "--accelerator A10"),
        (["modal", "--time", "5m"], "at least 10 minutes"),
        (["modal", "--time", "25h"], "at most 24 h"),
        (["modal", "--volume", "a b"], "--volume"),
        (["modal", "--secret", "x'y"], "--secret"),
    ],
)
def test_slips_are_one_line(words: list[str], said: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["launch", *words, "--unchecked", "--dry", *TRAIN]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("folder", ["a,b", 'a"b', "a b:c", "$(touch gone)"])
def test_docker_mounts_any_folder(folder: str, stubs: Stubs, work: Path) -> None:
    import csv

    stubs.add("docker", "x\n")
    assert etude(["launch", "docker", "--unchecked", f"--runs={folder}", *TRAIN]) == 0
    (mount,) = [word for word in stubs.calls("docker")[0] if word.endswith("target=/runs")]
    assert next(csv.reader([mount.removeprefix("--mount=")])) == ["type=bind", f"source={work / folder}", "target=/runs"]


class FakeModal(types.ModuleType):
    """What the app file uses of Modal, and what it was asked."""

    def __init__(self) -> None:
        super().__init__("modal")
        self.asked: dict[str, Any] = {}
        self.committed = self.reloaded = 0
        outer = self

        class Image:
            @classmethod
            def debian_slim(cls, python_version: str) -> Image:
                return cls()

            def add_local_dir(self, place: str, remote: str, **options: Any) -> Image:
                outer.asked.setdefault("folders", []).append((place, remote))
                return self

            def run_commands(self, *commands: str) -> Image:
                outer.asked.setdefault("commands", []).extend(commands)
                return self

        class Volume:
            @classmethod
            def from_name(cls, name: str, create_if_missing: bool) -> Volume:
                return cls()

            def reload(self) -> None:
                outer.reloaded += 1

            def commit(self) -> None:
                outer.committed += 1

        class App:
            def __init__(self, name: str, image: Image) -> None:
                outer.asked["name"] = name

            def function(self, **options: Any) -> Any:
                outer.asked["function"] = options
                return lambda function: function

            def local_entrypoint(self) -> Any:
                return lambda function: function

        self.Image, self.Volume, self.App = Image, Volume, App
        self.Retries = dict
        self.Secret = types.SimpleNamespace(from_name=lambda name: name)


def _app(work: Path) -> tuple[dict[str, Any], FakeModal]:
    (path,) = work.glob("runs/.launch/*/app.py")
    fake = FakeModal()
    sys.modules["modal"] = fake
    try:
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
    finally:
        del sys.modules["modal"]
    return names, fake


def test_modal_gets_an_app_whose_words_are_data(stubs: Stubs, work: Path) -> None:
    stubs.add("modal")
    words = [*TRAIN, *(f"--name={name}" for name in HOSTILE[:1]), "--seed", "1,2"]
    hostile = [f"training.notes={name}" for name in HOSTILE]
    options = ["--gpus", "2", "--accelerator", "A10", "--cpus", "4", "--memory", "8G", "--time", "2h", "--secret", "wandb"]
    assert etude(["launch", "modal", "--unchecked", *options, *words, *hostile]) == 2, "it costs money"
    assert not list(work.iterdir())
    assert etude(["launch", "modal", "--unchecked", "--yes", *options, *words, *hostile]) == 0
    names, fake = _app(work)
    assert names["FACTS"]["tasks"][1][:3] == list(TRAIN)
    assert [word for word in names["FACTS"]["tasks"][0] if word.startswith("training.notes")] == hostile
    asked = fake.asked["function"]
    assert (asked["gpu"], asked["cpu"], asked["memory"], asked["timeout"]) == ("A10:2", 4.0, 8192, 7200)
    assert asked["secrets"] == ["wandb"]
    (call,) = stubs.calls("modal")
    assert call[:2] == ["run", "--detach"]
    assert_no_secret(work)


def test_a_container_that_is_taken_away_saves_first(
    stubs: Stubs, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.add("modal")
    assert etude(["launch", "modal", "--unchecked", "--yes", "--no-code", *TRAIN]) == 0
    names, fake = _app(work)
    told: list[int] = []

    class Process:
        def __init__(self, words: list[str], **options: Any) -> None:
            assert words[1:3] == ["-m", "etude"]
            assert words[-1] == "--runs=/runs"

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None and not told:
                raise KeyboardInterrupt
            return 130

        def send_signal(self, number: int) -> None:
            told.append(number)

    monkeypatch.setattr(subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        names["task"](0)
    assert told == [signal.SIGTERM]
    assert (fake.reloaded, fake.committed) == (1, 1), "it reads what others left, and leaves what it has"


@pytest.mark.optional
def test_the_app_is_one_of_the_real_modal(stubs: Stubs, work: Path) -> None:
    modal = pytest.importorskip("modal")
    stubs.add("modal")
    options = ["--gpus", "1", "--accelerator", "A10", "--secret", "wandb"]
    assert etude(["launch", "modal", "--unchecked", "--yes", *options, *TRAIN]) == 0
    (path,) = work.glob("runs/.launch/*/app.py")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert names["app"].name.startswith("CartPole-v1-ppo")
    assert isinstance(names["task"], modal.Function)

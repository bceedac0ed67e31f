from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from etude import control
from etude.control import Started
from etude.errors import UserError
from etude.runs.run import Run
from etude.ui import control_jobs
from tests.ui.asgi_client import Client
from tests.ui.browser import wait_for


def job(client: Client, number: int, state: str) -> dict[str, Any]:
    def standing() -> Any:
        found = next(each for each in client.get("/api/jobs").json()["jobs"] if each["number"] == number)
        return found if found["state"] == state else None

    return wait_for(standing, state)


def test_a_training_is_started_with_the_words_of_the_command_line(
    client: Client, runs: list[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    go = threading.Event()

    def start(words: list[str], folder: Path) -> Started:
        asked.append((words, folder))
        go.wait(60)
        return Started(Run(root / runs[0]), 1)

    monkeypatch.setattr(control, "start", start)
    answer = client.post("/api/start", {"words": "CartPole-v1:ppo 'experiment.name=a b' training.total_steps=10"})
    assert (answer.status, answer.json()["state"]) == (202, "starting")
    go.set()
    assert job(client, answer.json()["number"], "running")["run"] == runs[0]
    assert asked == [(["CartPole-v1:ppo", "experiment.name=a b", "training.total_steps=10"], root.resolve())]


def test_what_goes_wrong_is_said(client: Client, runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def resume(run: Run, words: list[str]) -> Started:
        raise UserError(f"{run.id} {words}: no")

    monkeypatch.setattr(control, "resume", resume)
    answer = client.post(f"/api/run/{runs[0]}/resume", {"words": "a=1"})
    assert job(client, answer.json()["number"], "failed")["error"] == f"{runs[0]} ['a=1']: no"
    assert "not running" in client.post(f"/api/run/{runs[0]}/stop").json()["error"]
    for words in ("", "'", "x " * 200, "x" * 5000):
        assert client.post("/api/start", {"words": words}).status == 400


def test_options_and_import_paths_are_refused(client: Client) -> None:
    for words in (
        "--trust CartPole-v1:ppo",
        "CartPole-v1:ppo --runs=/elsewhere",
        "CartPole-v1:ppo training.callbacks=[{type:os.system}]",
    ):
        number = client.post("/api/start", {"words": words}).json()["number"]
        assert job(client, number, "failed")["error"]


def test_not_too_many_start_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def start(words: list[str], folder: Path) -> Started:
        go.wait(60)
        raise UserError("ended")

    monkeypatch.setattr(control, "start", start)
    numbers = [client.post("/api/start", {"words": "a:b"}).json()["number"] for _ in range(control_jobs._MOST_AT_ONCE)]
    assert client.post("/api/start", {"words": "a:b"}).status == 400
    go.set()
    for number in numbers:
        job(client, number, "failed")


def test_stopping_asks_the_run(client: Client, runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(control, "stop", lambda run: stopped.append(run.id))
    assert client.post(f"/api/run/{runs[1]}/stop").status == 202
    assert stopped == [runs[1]]

"""Requests reach the process that they are for, and nothing else in their folder is believed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.errors import EtudeError, UserError
from etude.runs import requests
from etude.runs.process import this_process
from etude.runs.records import write_record
from etude.runs.requests import Inbox, ask, note_event, read_events
from etude.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that this process trains."""
    run = Run(tmp_path / "20260101-000000-x")
    for folder in (run.path, run.logs):
        folder.mkdir()
    write_record(run.record_path, {"version": 1, "id": run.id, "name": "x", "status": "running", **this_process()})
    return run


@pytest.fixture
def inbox(run: Run) -> Inbox:
    return Inbox(run, this_process())


def test_requests_arrive_once_and_in_order(run: Run, inbox: Inbox) -> None:
    assert inbox.take() == []
    asked = [ask(run, "save"), ask(run, "set", ["algorithm.learning_rate=1e-4"]), ask(run, "stop")]
    assert inbox.take() == asked
    assert inbox.take() == []
    later = ask(run, "pause")
    assert inbox.take() == [later]


def test_a_look_at_a_settled_folder_is_one_stat(run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    past = time.time() - 60
    os.utime(run.path / requests.FOLDER, (past, past))
    inbox.take()
    listed: list[object] = []
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or [])
    assert inbox.take() == []
    assert not listed


@pytest.mark.parametrize(
    ("action", "words", "why"),
    [
        ("sav", (), "save, evaluate"),
        ("set", (), "which settings"),
        ("stop", ("a=1",), "takes no settings"),
        ("set", ["a=1"] * 33, "too much at once"),
        ("set", ["a=" + "1" * 20_000], "too much at once"),
    ],
)
def test_a_wrong_request_is_refused_where_it_is_made(run: Run, action: str, words: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        ask(run, action, words)


def test_a_run_that_does_not_train_cannot_be_asked(run: Run) -> None:
    run.update_status(status="finished")
    with pytest.raises(UserError, match="is not running: it is finished"):
        ask(run, "save")


def request_text(**changed: Any) -> str:
    owner = {name: this_process()[name] for name in ("pid", "pid_started", "host")}
    return json.dumps({"version": 1, "id": "a", "action": "stop", "words": [], "for": owner, **changed})


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: (path.with_name("elsewhere").write_text(request_text()), path.symlink_to("elsewhere")),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "no JSON": lambda path: path.write_text("{"),
    "no object": lambda path: path.write_text("[]"),
    "too large": lambda path: path.write_text(request_text() + " " * requests.LARGEST_REQUEST),
    "another version": lambda path: path.write_text(request_text(version=2)),
    "another process": lambda path: path.write_text(request_text(**{"for": {"pid": 1, "pid_started": "1", "host": "h"}})),
    "no action": lambda path: path.write_text(request_text(action="__init__")),
    "no words": lambda path: path.write_text(request_text(words="a=1")),
    "words that are none": lambda path: path.write_text(request_text(words=[1])),
    "written by anybody": lambda path: (path.write_text(request_text()), path.chmod(0o666)),
    "hidden": lambda path: path.with_name(f".{path.name}").write_text(request_text()),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_request_of_the_owner_is_never_answered(what: str, run: Run, inbox: Inbox) -> None:
    HOSTILE[what](run.path / requests.FOLDER / "1.json")
    assert inbox.take() == []
    good = ask(run, "save")
    assert inbox.take() == [good]


def test_the_request_that_all_those_differ_from_is_answered(run: Run, inbox: Inbox) -> None:
    path = run.path / requests.FOLDER / "1.json"
    path.write_text(request_text())
    path.chmod(0o600)
    assert [request.action for request in inbox.take()] == ["stop"]
    assert not path.exists()


def test_a_link_in_place_of_the_folder_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.path / requests.FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EtudeError, match="link"):
        Inbox(run, this_process())
    with pytest.raises(EtudeError, match="link"):
        ask(run, "save")


def test_events_are_read_back_and_what_is_none_is_passed_over(run: Run) -> None:
    note_event(run, "save", done=True, said="saved", at={"env_steps": 5}, id="a", metrics={"x": float("nan")})
    with open(run.logs / requests.EVENTS, "a") as file:
        file.write('{"version": 1, "half')
    note_event(run, "stop", done=True, said="stops", at={"env_steps": 9})
    first, second = read_events(run)
    assert (first["action"], first["env_steps"], first["metrics"]) == ("save", 5, {"x": None})
    assert second["action"] == "stop"

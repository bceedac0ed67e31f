"""Inspections of a server: one works at a time, each is bounded, can be stopped, and expires."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.errors import UserError
from etude.inspecting import desk as desks
from etude.inspecting.desk import Desk, Session, Wanted
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import same_future
from tests.inspecting.conftest import Trained


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    opened = Inspector.open
    monkeypatch.setattr(Inspector, "open", lambda *words, **options: opened(*words, **{**options, "pictures": False}))
    made = Desk(clock=clock)
    yield made
    made.close_all()


def wanted(run: Path, **options: Any) -> Wanted:
    return Wanted(**{"run": run, "checkpoint": None, "mode": "greedy", "seed": 0, "max_steps": 10, **options})


def done(desk: Desk, session: Session) -> Session:
    """All work that was asked for before is done once the one thread has come to this."""
    reached = threading.Event()
    desk._put(reached.set)
    assert reached.wait(120)
    return session


def test_a_session_records_and_branches(desk: Desk, trained: Trained) -> None:
    session = done(desk, desk.open(wanted(trained("CartPole-v1:ppo").path)))
    assert (session.busy, session.error) == (None, None)
    ((number, recording),) = session.recordings.items()
    desk.branch(session, number, 4)
    done(desk, session)
    future = session.recordings[max(session.recordings)]
    assert same_future(recording.steps, future.steps)


def test_what_fails_is_said_and_the_session_stays(desk: Desk, trained: Trained) -> None:
    session = done(desk, desk.open(wanted(trained("CartPole-v1:ppo").path)))
    (number,) = session.recordings
    desk.branch(session, number, 4, checkpoint="777777")
    assert "777777" in (done(desk, session).error or "")
    with pytest.raises(UserError, match="is not in"):
        desk.branch(session, number, 4, action=7)
    desk.branch(session, number, 4)
    assert done(desk, session).error is None
    assert len(session.recordings) == 2


def test_an_environment_that_fails_ends_its_work_and_not_the_server(
    desk: Desk, trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of the task's own")

    with monkeypatch.context() as patch:
        patch.setattr(Inspector, "record", fail)
        session = done(desk, desk.open(wanted(trained("CartPole-v1:ppo").path)))
    assert session.error == "ZeroDivisionError: of the task's own"
    assert "Traceback" in capsys.readouterr().err
    assert done(desk, desk.open(wanted(trained("CartPole-v1:ppo").path))).error is None


def test_recording_is_stopped_when_asked(desk: Desk, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, seen = threading.Event(), []

    def wants_more(session: Session, steps: int) -> bool:
        seen.append(steps)
        if steps == 3:
            begun.set()
            assert session.stop.wait(120)
        return not session.stop.is_set()

    monkeypatch.setattr(Session, "wants_more", wants_more)
    session = desk.open(wanted(trained("CartPole-v1:ppo").path))
    assert begun.wait(120)
    with pytest.raises(UserError, match="at work"):
        desk.branch(session, 0, 1) if session.recordings else desk.compute(session, lambda: None)
    session.stop.set()
    (recording,) = done(desk, session).recordings.values()
    assert (len(recording.steps), recording.ending) == (3, "stopped")


def test_sessions_expire_and_make_room(desk: Desk, clock: Clock, trained: Trained) -> None:
    run = trained("CartPole-v1:ppo").path
    first = done(desk, desk.open(wanted(run, max_steps=2)))
    environment: Any = first.opened().environment
    clock.now = desks.IDLE_S + 1
    with pytest.raises(UserError, match="has ended"):
        desk.session(first.id)
    assert done(desk, first).inspector is None
    assert environment is not None
    sessions = []
    for number in range(desks.MOST_SESSIONS + 1):
        clock.now += 1
        sessions.append(done(desk, desk.open(wanted(run, max_steps=2, seed=number))))
    with pytest.raises(UserError, match="has ended"):
        desk.session(sessions[0].id)
    assert desk.session(sessions[1].id) is sessions[1]


def test_the_oldest_future_makes_room_and_the_episode_stays(desk: Desk, trained: Trained) -> None:
    session = done(desk, desk.open(wanted(trained("CartPole-v1:ppo").path, max_steps=4)))
    (number,) = session.recordings
    for _ in range(desks.MOST_RECORDINGS + 1):
        desk.branch(session, number, 2)
        done(desk, session)
    assert len(session.recordings) == desks.MOST_RECORDINGS
    assert number in session.recordings


def test_a_strangers_import_path_is_not_followed(
    desk: Desk, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was signed with another key is a stranger's."""
    run = trained("etude.testing.probes:probe/Endings-v0:random")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    session = done(desk, desk.open(wanted(run.path)))
    assert "did not come from your own files" in (session.error or "")
    assert session.inspector is None
    trusting = Desk(frozenset([run.id]))
    try:
        assert done(trusting, trusting.open(wanted(run.path))).error is None
    finally:
        trusting.close_all()

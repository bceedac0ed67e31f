"""Inspections that a server keeps: one of them computes at a time, each is bounded, and one that nobody looks at is closed.

All work is done by one thread: what draws (OpenGL, SDL) belongs to the thread that made it. Others only read what is finished.
"""

from __future__ import annotations

import queue
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.errors import EtudeError, UserError
from etude.files.printable import one_line, printable
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import Recording
from etude.runs.run import Run
from etude.using.stored_policy import open_policy

MOST_SESSIONS = 4
MOST_RECORDINGS = 8
"""Of a session: the episode itself, and the futures that branch off."""
IDLE_S = 30 * 60.0
LOOK_S = 60.0
"""How often somebody looks for sessions that have expired."""
SESSION_BYTES = 256 * 2**20
WAIT_S = 60.0
"""How long a request waits for a picture that has to be computed."""

Mode = Literal["auto", "greedy", "sample"]
Busy = Literal["opening", "recording", "branching", "driving"]


@dataclass(frozen=True)
class Wanted:
    """What to look at."""

    run: Path
    checkpoint: str | None
    mode: Mode
    seed: int
    max_steps: int
    pictures: bool = True


@dataclass
class Session:
    """One inspection."""

    id: str
    wanted: Wanted
    inspector: Inspector | None = None
    recordings: dict[int, Recording] = field(default_factory=dict)
    busy: Busy | None = "opening"
    steps: int = 0
    """Of the recording at work."""
    error: str | None = None
    """Why the last work came to nothing."""
    stop: threading.Event = field(default_factory=threading.Event)
    seen: float = 0.0
    is_closed: bool = False

    def wants_more(self, steps: int) -> bool:
        """Note how far a recording is, and say whether to go on."""
        self.steps = steps
        return not self.stop.is_set()

    def opened(self) -> Inspector:
        """Return what acts; UserError before it is there."""
        if self.inspector is None:
            raise UserError(self.error or "this inspection is still opening")
        return self.inspector

    def recording(self, number: int) -> Recording:
        """Return a finished recording."""
        if number not in self.recordings:
            raise UserError(f"there is no recording {number} (any more)")
        return self.recordings[number]


class Desk:
    """The inspections of one folder of runs."""

    def __init__(self, trusted: frozenset[str] = frozenset(), *, clock: Callable[[], float] = time.monotonic) -> None:
        """`trusted` are ids of runs of others whose import paths may be followed."""
        self._trusted, self._clock = trusted, clock
        self._sessions: dict[str, Session] = {}
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._numbers = iter(range(2**62))

    # ---- sessions -----------------------------------------------------------------------------------------------------

    def open(self, wanted: Wanted) -> Session:
        """Begin to record an episode; the oldest inspection that does nothing makes room for it."""
        session = Session(secrets.token_urlsafe(12), wanted, seen=self._clock())
        with self._lock:
            self._expire()
            idle = [each for each in self._sessions.values() if each.busy is None]
            if len(self._sessions) >= MOST_SESSIONS:
                if not idle:
                    raise UserError(f"{MOST_SESSIONS} inspections are at work already; stop one of them")
                self._close(min(idle, key=lambda each: each.seen))
            self._sessions[session.id] = session
        self._submit(session, "opening", lambda: self._begin(session))
        return session

    def session(self, name: str) -> Session:
        """Return an inspection, which is then not idle; UserError where it has expired."""
        with self._lock:
            self._expire()
            session = self._sessions.get(name)
            if session is None:
                raise UserError("this inspection has ended: nobody looked at it for a while, or others needed its room")
            session.seen = self._clock()
            return session

    def close(self, session: Session) -> None:
        """End an inspection."""
        session.stop.set()
        with self._lock:
            self._close(session)

    def close_all(self) -> None:
        """End all of them, and the thread."""
        with self._lock:
            for session in list(self._sessions.values()):
                session.stop.set()
                self._close(session)
        if self._worker is not None:
            self._work.put(None)
            self._worker.join(timeout=WAIT_S)

    # ---- work ---------------------------------------------------------------------------------------------------------

    def branch(
        self,
        session: Session,
        number: int,
        step: int,
        *,
        action: Any = None,
        run: Path | None = None,
        checkpoint: str | None = None,
        mode: Literal["greedy", "sample"] | None = None,
        max_steps: int | None = None,
    ) -> None:
        """Begin another future of a recording."""
        inspector, recording = session.opened(), session.recording(number)
        if action is not None:
            inspector.read_action(action)  # says at once what is wrong with it

        def work() -> None:
            by = None
            if run is not None or checkpoint is not None:
                place = run or session.wanted.run
                by = open_policy(Run(place), checkpoint, trusted=place.name in self._trusted)
            how: dict[str, Any] = {"max_steps": max_steps or session.wanted.max_steps, "wants_more": session.wants_more}
            future = inspector.branch(recording, step, action=action, by=by, mode=mode, **how)
            self._add(session, future)

        self._submit(session, "branching", work)

    def go_on(self, session: Session, number: int, max_steps: int) -> None:
        """Play a recording further that was cut."""
        inspector, recording = session.opened(), session.recording(number)
        self._submit(
            session,
            "recording",
            lambda: inspector.go_on(recording, max_steps=max_steps, wants_more=session.wants_more),
        )

    def drive(self, session: Session, number: int, step: int) -> int:
        """Begin a drive at a step of a recording; returns its number."""
        inspector, recording = session.opened(), session.recording(number)
        made: list[int] = []
        self._wait_for(session, lambda: made.append(self._add(session, inspector.drive(recording, step))))
        return made[0]

    def steer(self, session: Session, number: int, asked: Any, steps: int) -> dict[str, Any]:
        """Go on with a drive for some steps; returns what was asked for in the end, how the robot moves, and its new poses."""
        inspector, recording = session.opened(), session.recording(number)
        command, before = inspector.steered().limited(asked), len(recording.poses)
        self._wait_for(session, lambda: inspector.steer(recording, command, steps))
        return {"command": list(command), "velocity": inspector.steered().velocity(), "poses": recording.poses[before:]}

    def _wait_for(self, session: Session, work: Callable[[], None]) -> None:
        done = threading.Event()
        self._submit(session, "driving", work, done)
        if not done.wait(WAIT_S):
            raise UserError("other inspections are at work; try again later")
        if session.error is not None:
            raise UserError(session.error)

    def compute(self, session: Session, work: Callable[[], Any]) -> Any:
        """Return what the thread that does all work makes of this; UserError where that takes too long."""
        found: queue.Queue[tuple[Any, EtudeError | None]] = queue.Queue()

        def at_work() -> None:
            try:
                found.put((work(), None))
            except EtudeError as error:
                found.put((None, error))

        if session.busy is not None:
            raise UserError("this inspection is at work; try again when it is done")
        self._put(at_work)
        try:
            value, error = found.get(timeout=WAIT_S)
        except queue.Empty:
            raise UserError("other inspections are at work; try again later") from None
        if error is not None:
            raise error
        return value

    def _begin(self, session: Session) -> None:
        wanted = session.wanted
        trusted = wanted.run.name in self._trusted
        session.inspector = inspector = Inspector.open(
            Run(wanted.run),
            wanted.checkpoint,
            mode=wanted.mode,
            pictures=wanted.pictures,
            world=True,
            trusted=trusted,
            most_bytes=SESSION_BYTES,
        )
        session.busy = "recording"
        recording = inspector.record(wanted.seed, max_steps=wanted.max_steps, wants_more=session.wants_more)
        self._add(session, recording)

    def _add(self, session: Session, recording: Recording) -> int:
        if len(session.recordings) >= MOST_RECORDINGS:
            _, oldest, *_ = sorted(session.recordings)  # the episode itself stays
            session.opened().forget(session.recordings.pop(oldest))
        number = next(self._numbers)
        session.recordings[number] = recording
        return number

    def _submit(self, session: Session, doing: Busy, work: Callable[[], None], done: threading.Event | None = None) -> None:
        with self._lock:
            if session.inspector is not None and session.busy is not None:
                raise UserError("this inspection is at work; stop it first")
            session.busy, session.error, session.steps = doing, None, 0
            session.stop.clear()

        def at_work() -> None:
            try:
                if not session.is_closed:
                    work()
            except EtudeError as error:
                session.error = printable(str(error))
            except Exception as error:  # noqa: BLE001 - an environment's own code may raise anything: the page says so
                traceback.print_exc(file=sys.stderr)
                session.error = one_line(f"{type(error).__name__}: {error}")
            finally:
                session.busy = None
                session.seen = self._clock()
                if done is not None:
                    done.set()

        self._put(at_work)

    def _put(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="etude-inspector", daemon=True)
                self._worker.start()
        self._work.put(work)

    def _run(self) -> None:
        import torch

        torch.set_num_threads(1)
        while True:
            try:
                work = self._work.get(timeout=LOOK_S)
            except queue.Empty:
                with self._lock:
                    self._expire()
                continue
            if work is None:
                return
            work()

    # ---- ending, with the lock held -----------------------------------------------------------------------------------

    def _expire(self) -> None:
        for session in list(self._sessions.values()):
            if session.busy is None and self._clock() - session.seen > IDLE_S:
                self._close(session)

    def _close(self, session: Session) -> None:
        """Take a session away; its environment is closed by the thread that made it, once its work is done."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.is_closed = True

        def end() -> None:
            inspector, session.inspector = session.inspector, None
            session.recordings.clear()
            if inspector is not None:
                inspector.close()

        self._work.put(end)

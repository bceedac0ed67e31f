"""Asks a training to do something, and waits for its answer.

A request is a file in the run's folder, for the process that trains it now and for no other: no signal is sent, so nothing can
reach a stranger that has the process's number by now, and asking twice to stop is no more than asking once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etude.errors import UserError
from etude.runs.requests import Request, ask, read_events
from etude.runs.run import Run

USUAL_PATIENCE_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Answer:
    """What a run made of a request."""

    done: bool
    said: str
    event: dict[str, Any]
    """All that was noted of it, the counters at which it was done among it."""


def stop(run: Run) -> Request:
    """Ask a training to save itself and stop at the end of its cycle; returns at once. UserError if it doesn't train."""
    return ask(run, "stop")


def answer(run: Run, request: Request, patience_s: float = USUAL_PATIENCE_S) -> Answer | None:
    """Wait for what a run makes of a request; None if it has not answered in time, as amid a long cycle or a compilation."""
    deadline = time.monotonic() + patience_s
    while True:
        is_running = run.status == "running"  # before the events are read: a run's last answer comes before its end
        for event in reversed(read_events(run)):
            if event.get("id") == request.id:
                return Answer(event.get("done") is True, str(event.get("said", "")), event)
        if not is_running:
            raise UserError(f"run {run.id} ended before it could answer: it is {run.status}")
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)


def ask_and_wait(
    run: Run, action: str, words: Sequence[str] = (), patience_s: float = USUAL_PATIENCE_S
) -> tuple[Request, Answer | None]:
    """Ask, and wait for the answer."""
    request = ask(run, action, words)
    return request, answer(run, request, patience_s)

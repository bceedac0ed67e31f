"""Trainings that a page asked to start or to resume: until one trains takes seconds, in which the page shows how it stands."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from etude.control import Started
from etude.errors import EtudeError, UserError

_MOST_AT_ONCE = 4
_REMEMBERED = 50


@dataclass
class Job:
    """One request."""

    number: int
    what: str
    asked: str
    """When, as ISO 8601 in UTC."""
    state: str = "starting"
    """Then ``running``, or ``failed``."""
    run: str | None = None
    error: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return it as the page reads it."""
        return dict(vars(self))


class ControlJobs:
    """What was asked since the server began, newest last."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def begin(self, what: str, action: Callable[[], Started]) -> Job:
        """Start in a thread and return at once; UserError where too many are starting already."""
        with self._lock:
            if sum(job.state == "starting" for job in self._jobs.values()) >= _MOST_AT_ONCE:
                raise UserError(f"{_MOST_AT_ONCE} trainings are starting already; wait for one of them")
            job = Job(next(self._numbers), what, datetime.now(UTC).isoformat(timespec="seconds"))
            self._jobs[job.number] = job
            for number in list(self._jobs)[:-_REMEMBERED]:
                if self._jobs[number].state != "starting":
                    del self._jobs[number]
        threading.Thread(target=self._carry_out, args=(job, action), name=f"control {job.number}", daemon=True).start()
        return job

    def all(self) -> list[dict[str, Any]]:
        """Return how all of them stand."""
        with self._lock:
            return [job.facts() for job in self._jobs.values()]

    def _carry_out(self, job: Job, action: Callable[[], Started]) -> None:
        try:
            started = action()
        except (EtudeError, OSError) as error:
            job.error, job.state = str(error)[:2000], "failed"
        except BaseException as error:
            job.error, job.state = f"{type(error).__name__}: {error}"[:2000], "failed"
            raise  # a fault of the code: its traceback goes to the terminal
        else:
            job.run, job.state = started.id, "running"

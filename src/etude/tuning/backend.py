"""Where trials run: the narrow seam between a search and the machines that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from etude.runs.indexed_run import IndexedRun


@dataclass(frozen=True)
class Needs:
    """What one run takes."""

    cpus: int | None = None
    """Threads; None: one, and not counted."""
    gpus: float | None = None
    """GPUs, also a fraction; None: dealt out in turn, 0: none is seen."""


@dataclass(frozen=True)
class Job:
    """One run of a trial: what to train, in the words of `etude train`, and where to find it again."""

    group: str
    seed: int
    arguments: tuple[str, ...]
    """What follows `etude train`, without seed, group and place."""
    needs: Needs = field(default_factory=Needs)
    pause_at: int | None = None
    """Save and stop at the first evaluation from these environment steps on; `resume` goes on."""

    @property
    def key(self) -> tuple[str, int]:
        """What names the run in its folder, whatever its id."""
        return self.group, self.seed


@dataclass(frozen=True)
class JobState:
    """How a job stands."""

    state: Literal["unknown", "running", "ended"]
    """unknown: nothing of ours runs it, now. A run of an earlier sitting may be there all the same."""
    run: IndexedRun | None = None
    """The run, once there is one: its status, counters, last metrics and place."""
    code: int | None = None
    """The exit code, once it has ended: 0 done, 2 a wrong request, 130 saved and stopped, negative for a signal."""
    complaint: str = ""
    """The last it said, if it went wrong."""


class Backend(Protocol):
    """Starts runs, looks at them, stops them and goes on with them. Runs lie in `root`, which all of its machines see."""

    root: Path

    def has_room(self, needs: Needs) -> bool:
        """Whether one more run would fit now."""
        ...

    def start(self, job: Job) -> None:
        """Begin a new run."""
        ...

    def resume(self, job: Job, run: IndexedRun, words: Sequence[str] = ()) -> None:
        """Go on with a run exactly where it stopped, with `words` changed from there on."""
        ...

    def poll(self, jobs: Sequence[Job]) -> dict[tuple[str, int], JobState]:
        """Return how each of these jobs stands, by its key."""
        ...

    def stop(self, job: Job) -> None:
        """Let a run save itself and stop; asked a second time, at once."""
        ...

    def close(self) -> None:
        """Stop whatever runs still, and wait for it."""
        ...

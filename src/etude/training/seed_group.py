"""Several seeds of one experiment: a group of runs, side by side within the cores, and one result of them all."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from etude.errors import UserError
from etude.runs.index import IndexedRun, find_runs
from etude.runs.statistics import Summary, summarise
from etude.training.child_run import ChildRun

POLL_S = 0.5


@dataclass
class Seed:
    """One run of the group, as its parent sees it."""

    seed: int
    process: ChildRun | None = None
    run: IndexedRun | None = None

    @property
    def code(self) -> int | None:
        """Its exit code; None while it waits or runs."""
        return None if self.process is None else self.process.code

    @property
    def state(self) -> str:
        """One word: waiting, running, or how it ended."""
        if self.process is None:
            return "waiting"
        if self.code is None:
            return "running"
        return "interrupted" if self.code == 130 else "failed" if self.code else self.run.status if self.run else "finished"

    @property
    def complaint(self) -> str:
        """The last it printed to stderr."""
        return "" if self.process is None else self.process.complaint


@dataclass
class SeedGroup:
    """Trains the same thing with each seed, each in its own process; one that fails doesn't stop the others."""

    name: str
    root: Path
    arguments: Sequence[str]
    """What follows `etude train`, without the seed and the group."""
    seeds: Sequence[int]
    parallel: int
    members: list[Seed] = field(init=False)

    def __post_init__(self) -> None:
        self.members = [Seed(seed) for seed in self.seeds]

    def train(self, show: Callable[[Sequence[Seed]], None]) -> int:
        """Run them all; returns 0, or 1 if one failed, 2 if the request was wrong, 130 if they were interrupted."""
        with tempfile.TemporaryDirectory(prefix="etude-") as folder, self._signals() as stopping:
            while any(member.code is None for member in self.members):
                if stopping and all(member.process is None or member.code is not None for member in self.members):
                    break
                if not stopping:
                    self._fill(Path(folder))
                self._look()
                show(self.members)
                if any(member.code == 2 for member in self.members):
                    self._forward(signal.SIGTERM)
                    self._wait()
                    break
                time.sleep(POLL_S)
            self._look()
            show(self.members)
            failed = [member for member in self.members if member.code not in (0, None, 130)]
            if failed:
                codes = {member.code for member in failed}
                text = "\n".join(dict.fromkeys(f"seed {member.seed}:\n{member.complaint}" for member in failed))
                raise UserError(failed[0].complaint.removeprefix("etude: ")) if 2 in codes else SeedsFailedError(text)
        return 130 if stopping else 0

    def result(self, metric: str) -> Summary | None:
        """Return the statistics of the last value of a metric over the seeds that finished."""
        values = [
            value
            for member in self.members
            if member.run is not None and member.run.status in ("finished", "stopped")
            if (value := member.run.metrics.get(metric)) is not None
        ]
        return summarise([values]) if values else None

    def _fill(self, folder: Path) -> None:
        room = self.parallel - sum(member.process is not None and member.code is None for member in self.members)
        for member in [member for member in self.members if member.process is None][: max(0, room)]:
            words = [*self.arguments, f"--seed={member.seed}", f"--group={self.name}", f"--runs={self.root}", "--quiet"]
            member.process = ChildRun(["train", *words], folder / f"{member.seed}.txt")

    def _look(self) -> None:
        found = find_runs(self.root, group=self.name) if self.root.is_dir() else []
        newest = {run.seed: run for run in reversed(found)}
        for member in self.members:
            member.run = newest.get(member.seed)
            if member.process is not None:
                member.process.poll()

    def _wait(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.wait()

    def _forward(self, number: int) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.send(number)

    @contextmanager
    def _signals(self) -> Iterator[list[int]]:
        """Pass SIGINT, SIGTERM and SIGHUP on: the runs save themselves and stop, a second time at once."""
        received: list[int] = []

        def receive(number: int, frame: object) -> None:
            received.append(number)
            self._forward(number)

        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, receive) for number in asked}
        try:
            yield received
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            # Whatever ends this loop, no run is left without its parent.
            self._forward(signal.SIGTERM)


class SeedsFailedError(UserError):
    """Some seeds failed; the others are whole."""

    exit_code = 1


def parse_seeds(text: str) -> list[int]:
    """Read `3`, `1,2,3` or `1-5`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
            raise UserError(f"--seed {text}: whole numbers, such as 3, 1,2,3 or 1-5")
        seeds += range(int(first), int(last or first) + 1)
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if repeated or not seeds:
        raise UserError(f"--seed {text}: {f'{repeated[0]} is there twice' if repeated else 'names no seed'}")
    return seeds

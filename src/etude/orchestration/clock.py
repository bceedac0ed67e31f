"""How far a run is, whatever its phases count, and how many seconds it needs.

    phase      ends by                    length    share
    gather     duration_steps: 10_000     10 000    1/6
    learn      duration_updates: 50_000   50 000    5/6

A phase that collects is as long as its environment steps, one that doesn't as its updates; it may declare its share instead.
Where only phases that collect have a length and none declares a share, there is nothing to weigh: the clock is the budget's
environment steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

from etude.config.phases import PhaseSpec
from etude.config.schedules import Stretch

ROWS_OF_SPEED = 20
"""Rows that speed is measured over: a stretch that holds one evaluation or so."""


class Clock:
    """What each phase makes of a run, and so how much of the run is over."""

    def __init__(self, phases: Sequence[PhaseSpec], total_steps: int) -> None:
        self.phases, self.total_steps = tuple(phases), total_steps
        self.lengths = _lengths(self.phases, total_steps)
        self.by_budget = not self.updates and all(phase.share is None for phase in self.phases)
        """Whether environment steps alone measure the run."""
        self.shares = _shares(self.phases, self.lengths)
        self._before = (0.0, *accumulate(self.shares))

    @property
    def steps(self) -> int:
        """Environment steps of the whole run, as far as its phases say."""
        return sum(length for phase, length in zip(self.phases, self.lengths, strict=True) if phase.collects)

    @property
    def updates(self) -> int:
        """Updates of the phases that don't collect."""
        return sum(length for phase, length in zip(self.phases, self.lengths, strict=True) if not phase.collects)

    def stretch(self, index: int, *, env_steps: int, updates: int, cycles: int) -> Stretch:
        """Return what a phase makes of the run, with so much of it done."""
        if index >= len(self.phases):
            return Stretch(1.0, 0.0, ())
        phase = self.phases[index]
        ends = (
            ("env_steps", env_steps, phase.duration_steps),
            ("updates", updates, phase.duration_updates),
            ("cycles", cycles, phase.duration_cycles),
        )
        known = tuple((unit, done, total) for unit, done, total in ends if total)
        if not known and self.lengths[index]:
            known = (("env_steps", env_steps, self.lengths[index]),)
        return Stretch(self._before[index], self.shares[index], known)


class Reading(NamedTuple):
    """Where the clock stands."""

    phase: int
    """Its number."""
    fraction: float
    """How much of the run is over."""
    env_steps: int
    updates: int


class Stopwatch:
    """The seconds of a run: all of them, by hook in this sitting, and those that are left."""

    def __init__(self, clock: Clock, now: Callable[[], float]) -> None:
        self.now, self._clock = now, clock
        self.elapsed_s = 0.0
        """Of the whole run, earlier sittings included; as of the last look."""
        self.spent: dict[str, float] = {}
        """Of this sitting, by hook."""
        self._origin = self._started = 0.0
        self._marks: deque[tuple[Reading, float]] = deque(maxlen=ROWS_OF_SPEED)
        self._speeds: dict[str, float] = {}  # fractions of the run a second, by the phase's name

    def start(self, reading: Reading) -> None:
        """A sitting begins."""
        self._started = self.now()
        self._origin = self._started - self.elapsed_s
        self.spent, self._speeds = {}, {}
        self._marks.clear()
        self._marks.append((reading, self.elapsed_s))

    def change_clock(self, clock: Clock, reading: Reading) -> None:
        """The run is longer or shorter from here on; its speed is measured anew."""
        self._clock, self._speeds = clock, {}
        self._marks.clear()
        self._marks.append((reading, self.look()))

    def leave_out(self, seconds: float) -> None:
        """Count seconds that have just passed for nothing: it was paused."""
        self._origin += seconds
        self._started += seconds

    def look(self) -> float:
        """Return the seconds of the run so far."""
        self.elapsed_s = self.now() - self._origin
        return self.elapsed_s

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count what is done within as time of a hook."""
        started = self.now()
        try:
            yield
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + self.now() - started

    def enter(self, reading: Reading) -> None:
        """Another phase begins, which has a speed of its own; not where all go by the same steps."""
        if not self._clock.by_budget:
            self._note_speed(reading, self.look())
            self._marks.clear()
            self._marks.append((reading, self.elapsed_s))

    def metrics(self, reading: Reading) -> dict[str, float]:
        """Return what a row says of time."""
        now = self.look()
        found = {"time/elapsed_s": now, "time/progress": reading.fraction}
        before, then = self._marks[0]
        if now > then:
            self._note_speed(reading, now)
            steps, updates = reading.env_steps - before.env_steps, reading.updates - before.updates
            if steps or not self._clock.by_budget:
                found["time/steps_per_second"] = steps / (now - then)
            if not self._clock.by_budget:
                found["time/updates_per_second"] = updates / (now - then)
            found |= self._left(reading)
        self._marks.append((reading, now))
        wall = self.now() - self._started
        return found | {f"time/share/{name}": spent / wall for name, spent in self.spent.items() if wall > 0}

    def _note_speed(self, reading: Reading, now: float) -> None:
        before, then = self._marks[0]
        if now > then and reading.fraction > before.fraction:
            self._speeds[self._name(before.phase)] = (reading.fraction - before.fraction) / (now - then)

    def _left(self, reading: Reading) -> dict[str, float]:
        """The seconds that each phase still takes at its own speed; one that has not run yet goes at the last known."""
        if not self._speeds:
            return {}
        usual = self._speeds.get(self._name(reading.phase), [*self._speeds.values()][-1])
        if self._clock.by_budget:
            return {"time/eta_s": (1.0 - reading.fraction) / usual}
        seconds, end = 0.0, 0.0
        for phase, share in zip(self._clock.phases, self._clock.shares, strict=True):
            end += share
            left = min(share, max(0.0, end - reading.fraction))
            seconds += left / self._speeds.get(phase.name, usual)
        return {"time/eta_s": seconds}

    def _name(self, phase: int) -> str:
        return "" if self._clock.by_budget else self._clock.phases[min(phase, len(self._clock.phases) - 1)].name


def _lengths(phases: Sequence[PhaseSpec], total_steps: int) -> tuple[int, ...]:
    """Return how long each phase is: in environment steps if it collects, in updates if not; 0 where nothing says so."""
    left, lengths = total_steps, list[int]()
    for phase in phases:
        if phase.collects:
            lengths.append(min(phase.duration_steps or 0, left))
            left -= lengths[-1]
        else:
            a_cycle = sum(hook.count for hook in phase.hooks if hook.name != "evaluate" and hook.ratio is None)
            lengths.append(phase.duration_updates or (phase.duration_cycles or 0) * a_cycle)
    # Those that end by anything else, or fill the budget, have what the others leave of it.
    open_ended = [index for index, phase in enumerate(phases) if phase.collects and not phase.duration_steps]
    for index in open_ended:
        lengths[index] = left // len(open_ended)
    return tuple(lengths)


def _shares(phases: Sequence[PhaseSpec], lengths: Sequence[int]) -> tuple[float, ...]:
    """Return what each phase makes of the run: as declared, and of the rest by length."""
    declared = sum(phase.share or 0.0 for phase in phases)
    rest = sum(length for phase, length in zip(phases, lengths, strict=True) if phase.share is None)
    if not rest:  # nobody else to share with
        return tuple((phase.share or 0.0) / (declared or 1.0) for phase in phases)
    per_length = (1.0 - declared) / rest
    return tuple(length * per_length if p.share is None else p.share for p, length in zip(phases, lengths, strict=True))

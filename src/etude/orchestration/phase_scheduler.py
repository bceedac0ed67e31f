"""Which hook runs next: a state machine over the phases of a curriculum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etude.config.phases import HookSpec, PhaseSpec
from etude.config.schedules import Stretch
from etude.errors import EtudeError, UserError
from etude.orchestration.awaited_metric import AwaitedMetric
from etude.orchestration.clock import Clock, Reading
from etude.orchestration.counters import Counters
from etude.orchestration.state_kinds import check_kinds
from etude.workflows.hooks import HookResult, Phase, never


@dataclass(frozen=True, slots=True)
class Action:
    """A hook to call, and how much to ask of it."""

    hook: str
    count: int
    cycles: int = 1
    """How many cycles this call completes, where several were merged into one (the chunk law allows it)."""


class PhaseScheduler:
    """Walks through phases, cycles and hooks. Its state says exactly where, down to half a hook."""

    def __init__(self, phases: Sequence[PhaseSpec], *, total_steps: int, steps_per_count: int) -> None:
        self.phases = tuple(phases)
        self.total_steps = total_steps
        self.clock = Clock(self.phases, total_steps)
        self.counters = Counters()
        """Of the whole run."""
        self.asked_to_stop: Callable[[], bool] = never
        """What hooks are given to ask whether to leave off."""
        self._steps_per_count = steps_per_count  # environment steps of one vector step
        self._index = 0
        self._hook = 0
        self._count = 0  # of the current hook, done already
        self._cycle_began = self._decisions_began = 0  # environment steps and decisions of the whole run then
        self._steps = self._decisions = self._updates = self._cycles = 0  # of this phase
        self._worked = False  # anything in this cycle
        self._until_met = False
        self._granted: dict[int, int] = {}  # what each ratio hook of this phase was given, done or forgiven
        self._awaited = AwaitedMetric()
        self._cut: dict[str, Any] | None = None  # where the budget ended, if it ended amid a phase
        self._worked_since = False  # in phases after that one
        self._enter_phase(0)

    # ---- where it stands ------------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether the last phase is over."""
        return self._index >= len(self.phases)

    @property
    def ended_by_budget(self) -> bool:
        """Whether a larger budget would let it go on."""
        return self._cut is not None or (self.is_finished and not self.phases[-1].is_bounded)

    @property
    def current_phase(self) -> PhaseSpec:
        """The phase that the next action belongs to."""
        return self.phases[min(self._index, len(self.phases) - 1)]

    @property
    def begins_phase(self) -> bool:
        """Whether the next action is the first of its phase."""
        return not (self._count or self._cycles or self._steps or self._updates)

    def check_budget(self, total_steps: int) -> None:
        """Raise UserError where the budget can't become this on the way."""
        if total_steps <= self.counters.env_steps:
            done = self.counters.env_steps
            raise UserError(f"training.total_steps={total_steps}: {done:,} are done already; stop the run instead")
        if self._cut is not None:
            raise UserError("training.total_steps: the budget is spent already, and phases after it are running")

    def change_budget(self, total_steps: int) -> None:
        """Go on to another number of environment steps in all."""
        self.check_budget(total_steps)
        self.total_steps, self.clock = total_steps, Clock(self.phases, total_steps)

    def reading(self) -> Reading:
        """Return where the clock stands."""
        steps, clock = self.counters.env_steps, self.clock
        if self.is_finished:
            fraction = 1.0
        elif clock.by_budget:
            fraction = min(1.0, steps / max(1, clock.steps))
        else:
            fraction = self._stretch(self._steps).fraction
        return Reading(self._index, fraction, steps, self.counters.updates)

    def view(self) -> Phase:
        """Return the current phase as a hook sees it."""
        spec, run = self.current_phase, self.counters
        began = self._steps - (run.env_steps - self._cycle_began)  # steps of this phase then
        return Phase(
            name=spec.name,
            type=spec.type,
            buffer=spec.buffer,
            extra=spec.extra,
            steps_done=self._steps,
            updates_done=self._updates,
            cycles_done=self._cycles,
            progress=self._stretch(self._steps).progress,
            env_steps=run.env_steps,
            total_steps=self.total_steps,
            cycle_began=self._cycle_began,
            decisions=self._decisions_began,
            updates=run.updates,
            stretch=None if self.clock.by_budget else self._stretch(began),
            asked_to_stop=self.asked_to_stop,
        )

    # ---- moving on --------------------------------------------------------------------------------------------------------

    def next_action(self, limit_steps: int | None = None, limit_updates: int | None = None) -> Action | None:
        """Return the next call, or None when the run is over.

        A phase with a single hook is asked for many cycles at once, up to the limits (the next evaluation, save or row).
        """
        while not self.is_finished:
            spec = self.current_phase.hooks[self._hook]
            count = self._due(spec)
            if spec.collects:
                # Nobody knows how many steps a count of anything else stands for: the budget is looked at after each.
                count = min(count, self._room() if spec.counts_steps else min(1, self._room()))
                if count == 0 and self._budget_left() == 0:
                    # The budget ran out between two collects: this phase is over, and where it stands is kept.
                    self._leave_unfinished()
                    continue
            if count == 0:
                self._finish_hook()
                continue
            if spec.takes_long and spec.ratio is None:
                return Action(spec.name, 1)
            return Action(spec.name, *self._merge(spec, count, limit_steps, limit_updates))
        return None

    def advance(self, action: Action, result: HookResult) -> None:
        """Take in what a call did."""
        spec = self.current_phase.hooks[self._hook]
        self.counters.decisions += result.decisions
        self.counters.env_steps += result.env_steps
        self.counters.updates += result.updates
        self._steps += result.env_steps
        self._decisions += result.decisions
        self._updates += result.updates
        self._worked = self._worked or not result.is_empty or spec.name == "evaluate"
        self._worked_since = self._cut is not None and (self._worked_since or not result.is_empty)
        if spec.ratio is not None:
            self._granted[self._hook] = self._granted.get(self._hook, 0) + action.count
        self._count += action.count
        self._cycles += action.cycles - 1
        self.counters.cycles += action.cycles - 1
        # A buffer that fills up ends a collect early; a budget that ends amid one leaves it half done.
        cut_short = spec.counts_steps and result.env_steps < action.count * self._steps_per_count
        if spec.ratio is not None or self._count >= spec.count * action.cycles or cut_short or self._phase_steps_left() == 0:
            self._finish_hook()

    def note_row(self, row: dict[str, float]) -> None:
        """Take in a logged row, for a phase that ends when a metric passes a bound."""
        if not self.is_finished and self._awaited.is_met(self.current_phase, row):
            self._until_met = True
            if self._hook == 0 and self._count == 0:
                self._enter_phase(self._index + 1)

    # ---- inside -----------------------------------------------------------------------------------------------------------

    def _due(self, spec: HookSpec) -> int:
        if spec.ratio is not None:
            done = self._decisions if spec.per == "decisions" else self._steps
            return int(spec.ratio * done) - self._granted.get(self._hook, 0)
        return spec.count - self._count if self._cycles % spec.every == 0 else 0

    def _merge(self, spec: HookSpec, count: int, limit_steps: int | None, limit_updates: int | None) -> tuple[int, int]:
        phase = self.current_phase
        alone = len(phase.hooks) == 1 and spec.ratio is None and spec.every == 1 and spec.name != "evaluate"
        if not alone or count < spec.count or phase.until is not None or spec.collects != spec.counts_steps:
            return count, 1
        if spec.collects:
            cycles = self._room() // spec.count
            if limit_steps is not None:
                cycles = min(cycles, limit_steps // (spec.count * self._steps_per_count))
        else:
            left = [n for n in (limit_updates, self._updates_left()) if n is not None]
            cycles = min(left) // spec.count if left else 1
        if phase.duration_cycles is not None:
            # Where cycles are what time goes by, each has a time of its own.
            cycles = min(cycles, phase.duration_cycles - self._cycles) if spec.collects else 1
        return count * max(1, cycles), max(1, cycles)

    def _room(self) -> int:
        """How many vector steps may still be taken in this phase and this run."""
        left = [n for n in (self._budget_left(), self._phase_steps_left()) if n is not None]
        return -(-min(left) // self._steps_per_count)

    def _budget_left(self) -> int:
        return max(0, self.total_steps - self.counters.env_steps)

    def _phase_steps_left(self) -> int | None:
        duration = self.current_phase.duration_steps
        return None if duration is None else max(0, duration - self._steps)

    def _updates_left(self) -> int | None:
        duration = self.current_phase.duration_updates
        return None if duration is None else max(0, duration - self._updates)

    def _finish_hook(self) -> None:
        self._hook += 1
        self._count = 0
        if self._hook < len(self.current_phase.hooks):
            return
        self._hook = 0
        self._cycles += 1
        self.counters.cycles += 1
        if len(self.current_phase.hooks) > 1:
            self._note_beginning()  # cycles of a single hook may be merged, and are all as the phase began
        if not self._worked:
            raise EtudeError(self._idle_message())
        self._worked = False
        if self._phase_is_over():
            self._enter_phase(self._index + 1)
        elif self._budget_left() == 0 and self.current_phase.collects:
            self._leave_unfinished()

    def _phase_is_over(self) -> bool:
        phase = self.current_phase
        return (
            self._until_met
            or self._phase_steps_left() == 0
            or self._updates_left() == 0
            or (phase.duration_cycles is not None and self._cycles >= phase.duration_cycles)
        )

    def _leave_unfinished(self) -> None:
        """Go on to the next phase because the budget is spent, and note where this one stands for a larger one."""
        if self._cut is None:
            self._cut = self._place()
        if self._index == len(self.phases) - 1:
            self._index = len(self.phases)
        else:
            self._enter_phase(self._index + 1)

    def _enter_phase(self, index: int) -> None:
        self._index = index
        self._hook = self._count = 0
        self._steps = self._decisions = self._updates = self._cycles = 0
        self._worked = self._until_met = False
        self._granted = {}
        self._note_beginning()
        self._awaited = AwaitedMetric()

    def _note_beginning(self) -> None:
        self._cycle_began, self._decisions_began = self.counters.env_steps, self.counters.decisions

    def _stretch(self, steps: int) -> Stretch:
        """Return the current phase as a part of the run, with so many of its environment steps done."""
        return self.clock.stretch(self._index, env_steps=steps, updates=self._updates, cycles=self._cycles)

    def _idle_message(self) -> str:
        phase = self.current_phase
        hooks = ", ".join(hook.name for hook in phase.hooks)
        if phase.type == "offline":
            return (
                f"phase '{phase.name}' is offline and its buffer holds too little to learn from; collect in a phase before it"
            )
        return f"phase '{phase.name}' did nothing in a whole cycle ({hooks}); does it collect into the buffer it learns from?"

    # ---- state ------------------------------------------------------------------------------------------------------------

    _SCALARS = (
        "_index",
        "_hook",
        "_count",
        "_cycle_began",
        "_decisions_began",
        "_steps",
        "_decisions",
        "_updates",
        "_cycles",
        "_worked",
        "_until_met",
    )

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands, and where the budget ended if that was amid a phase."""
        cut = {} if self._cut is None else {"cut": self._cut}
        return {**self._place(), "phases": len(self.phases), "worked_since": self._worked_since, **cut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; with a budget that was raised since, from where the old one ended, as if it had not."""
        self._stand_at(state)
        self._cut, self._worked_since = state.get("cut"), state.get("worked_since", False)
        if self._budget_left() == 0:
            return
        if self._cut is not None:
            check_kinds(self._cut, self._place(), "shared.scheduler.cut")
            if self._worked_since:
                name = self.phases[self._cut["index"]].name
                raise UserError(
                    f"the budget ended amid phase '{name}', and phases after it have learnt since: that can't be undone here; "
                    "go on from a checkpoint before that (--checkpoint), or begin a run with the larger budget"
                )
            self._stand_at(self._cut)
            self._cut = None
        elif self.is_finished and "worked_since" not in state and not self.phases[-1].is_bounded:  # saved by an earlier Etude
            self._index = len(self.phases) - 1

    def _place(self) -> dict[str, Any]:
        place = {name.lstrip("_"): getattr(self, name) for name in self._SCALARS}
        run = {"total_cycles": self.counters.cycles, "env_steps": self.counters.env_steps}
        awaited = {"missed_rows": self._awaited.missed_rows, "metric_seen": self._awaited.seen}
        return {**run, **place, "granted": dict(self._granted), **awaited}

    def _stand_at(self, place: dict[str, Any]) -> None:
        place = _of_this_version(place, self.counters.decisions, self._steps_per_count)
        self.counters.cycles, self.counters.env_steps = place["total_cycles"], place["env_steps"]
        for name in self._SCALARS:
            setattr(self, name, place[name.lstrip("_")])
        self._granted = {int(hook): granted for hook, granted in place["granted"].items()}
        self._awaited.missed_rows, self._awaited.seen = place.get("missed_rows", 0), place.get("metric_seen", False)


def _of_this_version(place: dict[str, Any], decisions: int, steps_per_count: int) -> dict[str, Any]:
    """Return what an earlier Etude has saved under the names, and with the facts, of today."""
    place = {"count": place.get("units"), **place}
    if "cycle_began" not in place:
        collected = place["count"] * steps_per_count if place["hook"] == 0 else 0
        place["cycle_began"] = place["env_steps"] - collected
    if "decisions_began" not in place:
        place["decisions_began"] = decisions * place["cycle_began"] // max(1, place["env_steps"])
    return place

"""Which hook runs next: a state machine over the phases of a curriculum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from etude.config.phases import LIKELY_METRICS, HookSpec, PhaseSpec
from etude.errors import EtudeError, UserError, did_you_mean
from etude.orchestration.state_kinds import check_kinds
from etude.workflows.base import HookResult, Phase

ROWS_TO_WAIT = 3
"""Rows with metrics of the same kind after which one that a phase waits for and nobody has logged is a mistake."""
ROWS_OF_ANOTHER_KIND = 20
"""The same for a kind of metrics that is an algorithm's own, and may come late."""
_KINDS = ("train", "eval", "collect", "hp", "time", "system")


class Action(NamedTuple):
    """A hook to call, and how many units of work to ask of it."""

    hook: str
    units: int
    cycles: int = 1
    """How many cycles this call completes, where several were merged into one (the chunk law allows it)."""


class PhaseScheduler:
    """Walks through phases, cycles and hooks. Its state says exactly where, down to half a hook."""

    def __init__(self, phases: Sequence[PhaseSpec], *, total_steps: int, steps_per_count: int) -> None:
        self.phases = tuple(phases)
        self.total_steps = total_steps
        self._steps_per_count = steps_per_count  # environment steps of one vector step
        self._index = 0
        self._hook = 0
        self._units = 0  # of the current hook, done already
        self._env_steps = 0  # of the whole run
        self._cycle_began = 0  # environment steps of the whole run then
        self._steps = self._decisions = self._updates = self._cycles = 0  # of this phase
        self._worked = False  # anything in this cycle
        self._until_met = False
        self.total_cycles = 0
        """Cycles completed in the whole run."""
        self._granted: dict[int, int] = {}  # units given to each ratio hook of this phase, done or forgiven
        self._missed_rows = 0  # of this phase, without the metric it waits for
        self._metric_seen = False
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

    def view(self) -> Phase:
        """Return the current phase as a hook sees it."""
        spec = self.current_phase
        return Phase(
            name=spec.name,
            type=spec.type,
            buffer=spec.buffer,
            extra=spec.extra,
            steps_done=self._steps,
            updates_done=self._updates,
            cycles_done=self._cycles,
            progress=self._progress(spec),
            env_steps=self._env_steps,
            total_steps=self.total_steps,
            cycle_began=self._cycle_began,
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
                count = min(count, self._room()) if spec.counts_steps or not self._room() else count
                if count == 0 and self._budget_left() == 0:
                    # The budget ran out between two collects: this phase is over, and where it stands is kept.
                    self._leave_unfinished()
                    continue
            if count == 0:
                self._finish_hook()
                continue
            return Action(spec.name, *self._merge(spec, count, limit_steps, limit_updates))
        return None

    def advance(self, action: Action, result: HookResult) -> None:
        """Take in what a call did."""
        spec = self.current_phase.hooks[self._hook]
        self._env_steps += result.env_steps
        self._steps += result.env_steps
        self._decisions += result.decisions
        self._updates += result.updates
        self._worked = self._worked or not result.is_empty or spec.name == "evaluate"
        self._worked_since = self._cut is not None and (self._worked_since or not result.is_empty)
        if spec.ratio is not None:
            self._granted[self._hook] = self._granted.get(self._hook, 0) + action.units
        self._units += action.units
        self._cycles += action.cycles - 1
        self.total_cycles += action.cycles - 1
        # A buffer that fills up ends a collect early; a budget that ends amid one leaves it half done.
        cut_short = spec.counts_steps and result.env_steps < action.units * self._steps_per_count
        if spec.ratio is not None or self._units >= spec.count * action.cycles or cut_short or self._phase_steps_left() == 0:
            self._finish_hook()

    def note_row(self, row: dict[str, float]) -> None:
        """Take in a logged row, for a phase that ends when a metric passes a bound."""
        until = self.current_phase.until
        if until is None or self.is_finished:
            return
        self._look_for(until.metric, row)
        if until.metric in row and until.met(row[until.metric]):
            self._until_met = True
            if self._hook == 0 and self._units == 0:
                self._enter_phase(self._index + 1)

    def _look_for(self, metric: str, row: dict[str, float]) -> None:
        """Raise UserError where a metric is missing from row after row: a typo in its name would take the whole budget."""
        if metric in row or metric in LIKELY_METRICS:  # those come with the first episode or evaluation, however late
            self._metric_seen = True
        if self._metric_seen:
            return
        kind = metric.partition("/")[0]
        self._missed_rows += kind not in _KINDS or any(name.startswith(f"{kind}/") for name in row)
        if self._missed_rows >= (ROWS_TO_WAIT if kind in _KINDS else ROWS_OF_ANOTHER_KIND):
            alike = [name for name in row if name.startswith(f"{kind}/")] or [name for name in row if "/" in name]
            near = did_you_mean(metric, row) or f" (there are: {', '.join(alike)})"
            raise UserError(f"phase '{self.current_phase.name}' waits for until.metric={metric}, which is not logged{near}")

    # ---- inside -----------------------------------------------------------------------------------------------------------

    def _due(self, spec: HookSpec) -> int:
        if spec.ratio is not None:
            done = self._decisions if spec.per == "decisions" else self._steps
            return int(spec.ratio * done) - self._granted.get(self._hook, 0)
        return spec.count - self._units if self._cycles % spec.every == 0 else 0

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
            cycles = min(cycles, phase.duration_cycles - self._cycles)
        return count * max(1, cycles), max(1, cycles)

    def _room(self) -> int:
        """How many vector steps may still be taken in this phase and this run."""
        left = [n for n in (self._budget_left(), self._phase_steps_left()) if n is not None]
        return -(-min(left) // self._steps_per_count)

    def _budget_left(self) -> int:
        return max(0, self.total_steps - self._env_steps)

    def _phase_steps_left(self) -> int | None:
        duration = self.current_phase.duration_steps
        return None if duration is None else max(0, duration - self._steps)

    def _updates_left(self) -> int | None:
        duration = self.current_phase.duration_updates
        return None if duration is None else max(0, duration - self._updates)

    def _finish_hook(self) -> None:
        self._hook += 1
        self._units = 0
        if self._hook < len(self.current_phase.hooks):
            return
        self._hook = 0
        self._cycles += 1
        self.total_cycles += 1
        if len(self.current_phase.hooks) > 1:
            self._cycle_began = self._env_steps  # cycles of a single hook may be merged, and are all as the phase began
        if not self._worked:
            raise EtudeError(self._idle_message())
        self._worked = False
        if self._phase_is_over():
            self._enter_phase(self._index + 1)
        elif self._budget_left() == 0 and any(hook.collects for hook in self.current_phase.hooks):
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
        self._hook = self._units = 0
        self._steps = self._decisions = self._updates = self._cycles = 0
        self._worked = self._until_met = False
        self._granted = {}
        self._cycle_began = self._env_steps
        self._missed_rows, self._metric_seen = 0, False

    def _progress(self, spec: PhaseSpec) -> float:
        pairs = (
            (self._steps, spec.duration_steps),
            (self._updates, spec.duration_updates),
            (self._cycles, spec.duration_cycles),
        )
        parts = [done / duration for done, duration in pairs if duration]
        if not parts:
            parts = [self._env_steps / self.total_steps]
        return min(1.0, max(parts))

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
        "total_cycles",
        "_index",
        "_hook",
        "_units",
        "_env_steps",
        "_cycle_began",
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
        return {**place, "granted": dict(self._granted), "missed_rows": self._missed_rows, "metric_seen": self._metric_seen}

    def _stand_at(self, place: dict[str, Any]) -> None:
        if "cycle_began" not in place:  # saved by an earlier version
            collected = place["units"] * self._steps_per_count if place["hook"] == 0 else 0
            place = {**place, "cycle_began": place["env_steps"] - collected}
        for name in self._SCALARS:
            setattr(self, name, place[name.lstrip("_")])
        self._granted = {int(hook): granted for hook, granted in place["granted"].items()}
        self._missed_rows, self._metric_seen = place.get("missed_rows", 0), place.get("metric_seen", False)

"""The one training loop. It knows phases, counters, rows and checkpoints, and no algorithm."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from etude.compute.memory_use import MemoryPeaks
from etude.compute.random_streams import RandomStreams, global_generators_kept
from etude.compute.system_use import SystemUse
from etude.compute.weak_methods import weakly
from etude.compute.world import ALONE, World
from etude.errors import EnvironmentFailureError, EtudeError, NonFiniteError
from etude.orchestration.attached import Attendant, CheckpointWriter, Row, RowSink
from etude.orchestration.best_evaluations import BestEvaluations, Monitor, Ranked
from etude.orchestration.cadences import Cadences, Grids
from etude.orchestration.callbacks import MOST_RECENT, AlertBoard, Callback, Progress, load_states, states_of
from etude.orchestration.clock import Stopwatch
from etude.orchestration.evaluator import Attend, Evaluator, attending
from etude.orchestration.finite import check_finite
from etude.orchestration.phase_scheduler import Action, PhaseScheduler
from etude.orchestration.state_kinds import check_kinds
from etude.workflows.base import HookResult, LeftAmidError, Workflow
from etude.workflows.collector import Collector

LEFT = "stopped by the caller"


class Orchestrator:
    """Runs hooks until the phases are over; evaluates, logs and saves at cycle boundaries."""

    def __init__(
        self,
        *,
        workflow: Workflow,
        scheduler: PhaseScheduler,
        collector: Collector | None,
        buffers: dict[str, Any],
        streams: RandomStreams,
        cadences: Cadences,
        world: World = ALONE,
        evaluator: Evaluator | None = None,
        callbacks: Sequence[Callback] = (),
        monitor: Monitor = Monitor(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.workflow, self.scheduler, self.collector, self.buffers = workflow, scheduler, collector, buffers
        self.streams, self.evaluator, self.callbacks, self.world = streams, evaluator, tuple(callbacks), world
        self.counters = scheduler.counters
        self.last_evaluation: dict[str, float] = {}
        self.best = BestEvaluations(monitor)
        self.rollbacks = 0
        """How often the run has gone back to a save for NaN weights, on the way to where it stands."""
        self.stop_reason: str | None = None
        self.stopwatch = Stopwatch(scheduler.clock, clock)
        self._last_evaluation_at: dict[str, int] | None = None
        self._sink: RowSink | None = None
        self._write_checkpoint: CheckpointWriter | None = None
        self._run_dir: Path | None = None
        self._save_seconds = _seconds(cadences)
        self._grids = Grids(cadences, self.counters)
        self._collects = True  # whether the phase that ran last does
        self._watches_cycles = any(type(callback).on_cycle is not Callback.on_cycle for callback in self.callbacks)
        self._extra_callbacks: tuple[Callback, ...] = ()
        self._attendant: Attendant | None = None
        self._asked_to_stop: str | None = None  # by a signal or a caller, at any moment
        self._interrupted: str | None = None  # the same, once all processes know of it
        self._is_in_a_hurry = False  # a stop that does not wait for an evaluation
        self._owes_evaluation = False
        """Whether such a stop cut off the evaluation of the boundary it stands at: the next sitting begins with it."""
        self.on_long_evaluation: Callable[[str], None] | None = None
        """Hears how far an evaluation has come, every quarter of a minute."""
        self._memory, self._system = MemoryPeaks(), SystemUse()
        self.recent: deque[Row] = deque(maxlen=MOST_RECENT)
        """The last rows, for callbacks to look back on."""
        self.alerts: AlertBoard | None = None
        self._evaluation: dict[str, float] = {}  # since the last row
        self._ranked: Ranked | None = None  # an evaluation among the best whose policy is not saved yet
        self._saved_at: dict[str, int] | None = None
        self._finite_at: dict[str, int] | None = None  # where the weights were last seen to be finite
        self._logged_at: dict[str, int] | None = None
        self._began_at: dict[str, int] | None = None  # where this sitting did
        self._left_amid = False  # a hook was left as it had begun, because of a wish to stop
        scheduler.asked_to_stop = weakly(self, self._is_stop_wanted)

    def attach(self, *, sink: RowSink, write_checkpoint: CheckpointWriter, run_dir: Path) -> None:
        """Say where rows and checkpoints go."""
        self._sink, self._write_checkpoint, self._run_dir = sink, write_checkpoint, run_dir

    @property
    def run_dir(self) -> Path | None:
        """The run's folder, once there is one."""
        return self._run_dir

    def add_callback(self, callback: Callback) -> None:
        """Let one more callback watch; its state is not part of checkpoints."""
        self._extra_callbacks = (*self._extra_callbacks, callback)
        self._watches_cycles = self._watches_cycles or type(callback).on_cycle is not Callback.on_cycle

    def attend_with(self, attendant: Attendant) -> None:
        """Let someone look at each cycle boundary. Cycles stay merged: a boundary may be as far away as the next row."""
        self._attendant = attendant

    def begin(self) -> None:
        """Begin the first episodes of a run; what its buffers can't hold is an error here."""
        assert self.collector is not None
        observation = self.collector.start(self.workflow.initial_state)
        for buffer in self.buffers.values():
            buffer.begin(observation)

    # ---- the loop -----------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Train to the end, or until something asks to stop; returns why it ended."""
        for _ in self.rows():
            pass
        return self.stop_reason or ""

    def rows(self) -> Iterator[Row]:
        """Train, yielding each row of metrics as it is logged; whoever leaves the loop leaves a saved run."""
        self.stop_reason = self._interrupted = self._asked_to_stop = None
        self._is_in_a_hurry = self._left_amid = False
        self.stopwatch.start(self.scheduler.reading())
        self._began_at, last_save = self._position(), self.stopwatch.now()
        self._tell(lambda callback: callback.on_start(self.progress()))
        if self._saved_at is None:
            self.save()
        while self.stop_reason is None and (self._owes_evaluation or self._cycle_done()):
            row = None if self._left_amid else self._boundary_row()
            if row is not None:
                try:
                    with global_generators_kept():
                        yield row
                except GeneratorExit:
                    self.interrupt(LEFT)
            overdue = self._save_seconds is not None and self.stopwatch.now() - last_save >= self._save_seconds
            overdue = self._agree((self._attendant is not None and self._attendant.look()) or overdue)
            if overdue or self._saved_at is None or self._is_due("save") or self._interrupted:
                self._require_finite()
                self.save()
                last_save = self.stopwatch.now()
            elif self._ranked is not None:
                self.save(policy_only=True)
            if self._interrupted and not self.is_complete:
                # Saved, and nothing else: no row and no evaluation, so that a stop leaves no trace in what follows.
                self.stop_reason = self.stop_reason or self._interrupted
                self._end()
                return
            if self._attendant is not None:
                self._attendant.go_on()
        self._require_finite()
        self.stop_reason = self.stop_reason or "the budget is spent"
        row = self._final_row()
        try:
            if row is not None and not self._interrupted:
                yield row
        finally:
            self.save()
            self._end()

    def _agree(self, overdue: bool) -> bool:
        """Let all processes stop, or save, where one is asked to: by clocks, signals and callbacks, which each has."""
        self._interrupted = self._asked_to_stop
        if self.world.size == 1:
            return overdue
        stops, interrupted, overdue = self.world.any(self.stop_reason is not None, self._interrupted is not None, overdue)
        if stops or interrupted:
            said = self.world.gather_plain([self.stop_reason, self._interrupted])
            self.stop_reason, self._interrupted = (next(filter(None, each), None) for each in zip(*said, strict=True))
        return overdue

    def save_first(self) -> None:
        """Save before anything else once training goes on, though the state is a checkpoint's."""
        self._saved_at = None

    def interrupt(self, reason: str, *, hurry: bool = False) -> None:
        """Ask the loop to save and stop at the next cycle boundary; safe to call from a signal handler.

        In a hurry it does not wait for an evaluation of that boundary, which may take minutes: a resume begins with it.
        """
        self._asked_to_stop, self._is_in_a_hurry = reason, hurry

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether it will stop at the next boundary."""
        return bool(self._asked_to_stop)

    def _is_stop_wanted(self) -> bool:
        return any(self.world.any(self.is_asked_to_stop))

    def change_cadences(self, cadences: Cadences) -> None:
        """Log, evaluate and save on other grids from here on, as a run that is resumed with them would."""
        grids = Grids(cadences, self.counters)
        grids.load_state_dict(self._grids.state_dict())
        self._grids, self._save_seconds = grids, _seconds(cadences)

    def change_budget(self, total_steps: int) -> None:
        """Train to another number of environment steps, as a run that is resumed with it would."""
        self.scheduler.change_budget(total_steps)
        self.stopwatch.change_clock(self.scheduler.clock, self.scheduler.reading())

    @property
    def is_complete(self) -> bool:
        """Whether the budget is spent, and what it came to is measured."""
        return self.scheduler.is_finished and not self._owes_evaluation

    @property
    def was_interrupted(self) -> bool:
        """Whether the last training ended because it was asked to, from outside."""
        return self._interrupted is not None

    def close(self) -> None:
        """Close the environments, those of evaluations too."""
        if self.evaluator is not None:
            self.evaluator.close()
        if self.collector is not None:
            self.collector.environment.close()

    def _cycle_done(self) -> bool:
        """Run a cycle; False once nothing is left. Whatever goes wrong is told to the callbacks and passed on."""
        try:
            alive = self._run_cycle()
            due = any(self._is_due(event) for event in ("log", "evaluate", "save"))
            if due or self.scheduler.is_finished:
                self._check_finite()
            return alive
        except BaseException as error:
            if isinstance(error, EnvironmentFailureError) and self.world.size == 1:  # the others are not here to save with
                # Buffer, streams and environment stand at different moments now: only the weights are worth a try.
                with suppress(EtudeError, OSError):
                    self.save(policy_only=True)
            self._fail(error)
            raise

    def _check_finite(self) -> None:
        """Look at the weights before they are measured, logged or saved; once, however many of these are due."""
        if self._finite_at == self._position():
            return
        found: NonFiniteError | None = None
        try:
            check_finite(self.workflow, self.counters, self.collector, self.buffers.values())
        except NonFiniteError as error:
            found = error
        if any(self.world.any(found is not None)):  # what a copy was paid, and what a buffer holds, is each process's own
            raise found or NonFiniteError(f"another rank found numbers that are NaN or infinite at {self._when()}")
        self._finite_at = self._position()

    def _when(self) -> str:
        return f"{self.counters.env_steps:,} environment steps and {self.counters.updates:,} updates"

    def _require_finite(self) -> None:
        """Look at the weights between cycles; the callbacks are told if the run ends here."""
        try:
            self._check_finite()
        except NonFiniteError as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Say to the callbacks why the run ends here."""
        self.stop_reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        self._tell(lambda callback: callback.on_exception(self.progress(), error))
        self._end()

    def _run_cycle(self) -> bool:
        """Run hooks to the end of a cycle; False once nothing is left to run."""
        began, self._left_amid = self.counters.cycles, False
        while True:
            action = self.scheduler.next_action(*((0, 0) if self._watches_cycles else self._grids.limits()))
            if action is None or self.counters.cycles != began:
                break  # hooks that were not due ended the cycle; the action found belongs to the next one
            try:
                result = self._call(action)
            except LeftAmidError:
                self._left_amid = True
                return True
            self.scheduler.advance(action, result)
            if result.metrics:
                self.workflow.metrics.add(result.metrics, group=action.hook)
            if self.counters.cycles != began:
                break
        return self.counters.cycles != began

    def _call(self, action: Action) -> HookResult:
        phase = self.scheduler.current_phase
        if self.scheduler.begins_phase:
            self._grids.enter()
            self.stopwatch.enter(self.scheduler.reading())
        self._collects = phase.collects
        self._memory.enter(phase.name)
        if action.hook == "evaluate":
            self._evaluate()
            return HookResult()
        with self.stopwatch.timed(action.hook):
            result = getattr(self.workflow, action.hook)(self.scheduler.view(), action.count)
        ranks = self.world.size  # which all took as many steps
        return replace(result, decisions=ranks * result.decisions, env_steps=ranks * result.env_steps) if ranks > 1 else result

    # ---- rows, evaluations, saves -------------------------------------------------------------------------------------------

    def _boundary_row(self) -> Row | None:
        if self._watches_cycles and not self._owes_evaluation:
            self._tell(lambda callback: callback.on_cycle(self.progress()), may_stop=True)
        # At the end too, before the row: the last step has one row and one save, with its evaluation in both.
        if self._owes_evaluation or self._is_due("evaluate") or (self.scheduler.is_finished and self._is_unmeasured()):
            attend = attending(self.stopwatch.now, self.on_long_evaluation, lambda: not self._is_in_a_hurry)
            owed, self._owes_evaluation = self._owes_evaluation, not self._evaluate(attend)
            if self._owes_evaluation:
                return None
            if owed:
                self._saved_at = None  # what was saved here has no measurement
        return self._log() if self._evaluation or self._is_due("log") else None

    def _final_row(self) -> Row | None:
        if self._is_unmeasured():
            self._evaluate()
        idle = self._logged_at is None and self._began_at == self._position()  # a sitting with nothing left to do
        if idle or self._logged_at == self._position():
            self._evaluation = {}  # stopped at a row: a step has one row, and the summary and the checkpoint have the rest
            return None
        return self._log()

    def _is_unmeasured(self) -> bool:
        """Whether the end of the run calls for an evaluation: not where only phases evaluate, or nothing does."""
        return self._grids.has("evaluate") and self._last_evaluation_at != self._position()

    def _evaluate(self, attend: Attend | None = None) -> bool:
        """Measure the policy; False if `attend` ended that."""
        if self.evaluator is None:
            self._grids.done("evaluate")
            return True
        self._check_finite()
        self._tell(lambda callback: callback.on_evaluation_start(self.progress()))
        with self.stopwatch.timed("evaluate"):
            policy, steps, updates = self.workflow.policy(), self.counters.env_steps, self.counters.updates
            metrics = self.world.from_first(partial(self.evaluator.evaluate, policy, steps, updates, attend))
        if not metrics:
            return False
        self._grids.done("evaluate")
        self._ranked = self.best.add(metrics, steps, updates) or self._ranked
        if self.best.value is not None:
            metrics[self.best.monitor.best_name] = self.best.value
        self._last_evaluation_at = self._position()
        self._evaluation = self.last_evaluation = metrics
        return True

    def _log(self) -> Row:
        with self.stopwatch.timed("log"):
            self._grids.done("log")
            self._logged_at = self._position()
            self._refresh_episodes()
            row: Row = {**self.counters.as_dict(), **self.world.mean_of_named(self.workflow.metrics.drain())}
            row |= {f"hp/{name}": value for name, value in self.workflow.hyper_parameters().items()}
            if self.collector is not None:
                row |= self.collector.read(self.world)
            row |= self._evaluation | self.stopwatch.metrics(self.scheduler.reading()) | self._memory.read()
            row |= self._system.read(self._run_dir)
            self._evaluation = {}
            with global_generators_kept():
                for callback in (*self.callbacks, *self._extra_callbacks):
                    row = {**callback.on_log(self.progress()), **row}
                row = self.world.from_first(row.copy)
                self.recent.append(row)
                if self._sink is not None and self.world.is_first:
                    self._sink.write([row])
        try:
            self.scheduler.note_row(row)
        except EtudeError as error:  # a phase that can't end as it was asked to; the run can go on with other phases
            self.save()
            self._fail(error)
            raise
        self._tell(lambda callback: callback.on_row(self.progress(), row), may_stop=True)
        return row

    def save(self, *, policy_only: bool = False) -> None:
        """Write a checkpoint of the whole run, or of the policy alone; never changes the run."""
        if self._write_checkpoint is None or (self._saved_at == self._position() and self._ranked is None):
            return
        self._check_finite()
        with self.stopwatch.timed("save"):
            self._refresh_episodes()
            self.stopwatch.look()
            parts: dict[str, Any] = {"policy": self.workflow.policy().state_dict()}
            if not policy_only:
                self._saved_at = self._position()
                self._grids.done("save")
                parts |= self.state_dict()
            metadata = {"phase": self.scheduler.current_phase.name, "metrics": self.last_evaluation, "best": self.best.value}
            metadata |= {"owes_evaluation": True} if self._owes_evaluation else {}
            is_best = False
            if self._ranked is not None:
                monitor, is_best = self.best.monitor, self._ranked.place == 0
                metadata["ranked"] = {"metric": monitor.metric, "mode": monitor.mode, "value": self._ranked.value}
            with global_generators_kept():
                store = partial(self._write_checkpoint, counters=self.counters.as_dict(), metadata=metadata, best=is_best)
                path = Path(self.world.write_together(parts, lambda whole: str(store(whole))))
            self._ranked = None
        self._tell(lambda callback: callback.on_checkpoint(self.progress(), path))

    def _end(self) -> None:
        self.stopwatch.look()
        self._tell(lambda callback: callback.on_end(self.progress(), self.stop_reason or ""))

    def _tell(self, event: Callable[[Callback], str | None], *, may_stop: bool = False) -> None:
        """Call every callback; whatever they draw from the global generators, the run goes on as if without them."""
        with global_generators_kept():
            for callback in (*self.callbacks, *self._extra_callbacks) if self.world.is_first else ():
                reason = event(callback)
                if may_stop and reason and self.stop_reason is None:
                    self.stop_reason = reason

    def _is_due(self, what: str) -> bool:
        return self._grids.is_due(what, collects=self._collects)

    def _position(self) -> dict[str, int]:
        return {key: value for key, value in self.counters.as_dict().items() if key != "episodes"}

    def progress(self) -> Progress:
        """Return where the run is, as callbacks see it."""
        name, fraction = self.scheduler.current_phase.name, self.scheduler.reading().fraction
        steps = self.scheduler.total_steps
        progress = Progress(self.counters.as_dict(), name, steps, self._run_dir, self.workflow.policy, fraction)
        return replace(progress, recent=self.recent, alerts=self.alerts)

    def _refresh_episodes(self) -> None:
        if self.collector is not None:
            finished = self.collector.episodes.finished
            self.counters.episodes = finished if self.world.size == 1 else int(self.world.sum(torch.tensor(finished)))

    # ---- state --------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the whole run: what every process shares, and what is this process's own."""
        shared = {
            "workflow": self.workflow.state_dict(),
            "callbacks": states_of(self.callbacks),
            "evaluation": {"last": self.last_evaluation, "at": self._last_evaluation_at, "best": self.best.state_dict()},
            **self._counts(),
        }
        own = {
            "collector": None if self.collector is None else self.collector.state_dict(),
            "buffers": {name: buffer.state_dict() for name, buffer in self.buffers.items()},
            "streams": self.streams.state_dict(),
            **({} if self.world.size == 1 else {"workflow": self.workflow.rank_state_dict()}),
        }
        return {"shared": shared, self.world.part: own}

    def _counts(self) -> dict[str, Any]:
        """The part of the state that is nothing but counts and flags of the loop."""
        return {
            "counters": self.counters.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "cadences": self._grids.state_dict(),
            "rollbacks": self.rollbacks,
            "owes_evaluation": self._owes_evaluation,
            "elapsed_s": self.stopwatch.elapsed_s,
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Continue the run that was saved; returns what could not be continued exactly, one line each."""
        shared, own = state["shared"], self.world.own_part(state)
        check_kinds(shared, self._counts(), "shared")
        self.workflow.load_state_dict(shared["workflow"])
        self.workflow.load_rank_state_dict(own.get("workflow", {}))
        self.counters.load_state_dict(shared["counters"])
        self.scheduler.load_state_dict(shared["scheduler"])
        notes = load_states(self.callbacks, shared["callbacks"])
        self._grids.load_state_dict(shared["cadences"])
        self.last_evaluation = shared["evaluation"]["last"]
        self.best.load_state_dict(shared["evaluation"]["best"])
        self._ranked = None
        self._last_evaluation_at = shared["evaluation"]["at"]
        self.stopwatch.elapsed_s = shared["elapsed_s"]
        self.rollbacks = shared.get("rollbacks", 0)
        self._owes_evaluation = shared.get("owes_evaluation", False)
        collector, begin = self.collector, self.workflow.initial_state
        note = None if collector is None else collector.load_state_dict(own["collector"], begin)
        for name, buffer in self.buffers.items():
            buffer.load_state_dict(own["buffers"][name])
        self.streams.load_state_dict(own["streams"])
        self._saved_at = self._position()
        return [*notes, note] if note else notes


def _seconds(cadences: Cadences) -> float | None:
    return None if cadences.save_minutes is None else cadences.save_minutes * 60

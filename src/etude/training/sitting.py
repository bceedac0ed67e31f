"""One sitting of training: what watches it, what it writes, and what happens when it ends."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from etude.compute.devices import out_of_memory
from etude.compute.random_streams import GlobalGenerators, global_generators_kept
from etude.compute.world import RankLostError
from etude.config.hashing import config_hash
from etude.config.schema import Config
from etude.errors import CheckpointError, EnvironmentFailureError, EtudeError, NonFiniteError
from etude.files.regular import append_lines
from etude.orchestration.attached import CheckpointWriter, Row
from etude.orchestration.inspection import bottleneck, no_update
from etude.orchestration.orchestrator import LEFT, Orchestrator
from etude.reporting.writing import write_run_report
from etude.runs import provenance
from etude.runs.checkpoint import CheckpointStore
from etude.runs.places import command
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.telemetry.alerts import Alerts
from etude.telemetry.console import Console
from etude.telemetry.jsonl import JsonlSink, write_csv
from etude.telemetry.run_log import tee_to
from etude.telemetry.sinks import Sink, SinkGroup
from etude.training import assembly, run_facts
from etude.training.attendant import HELP, Attendant
from etude.training.checkpoint_loading import load_checkpoint
from etude.training.keyboard import Keyboard, listening
from etude.training.record_histograms import RecordHistograms
from etude.training.record_media import RecordMedia
from etude.training.run_failures import disk_failures_reported, goes_on
from etude.training.run_results import run_results
from etude.training.run_sinks import optional_sinks
from etude.training.sampler_notices import SamplerNotices
from etude.training.status_report import StatusReport
from etude.training.stop_signals import stopping_on_signals
from etude.training.together import ON_ITS_OWN, Together
from etude.training.watching import Watching

MOST_ROLLBACKS = 3
"""Tries from one save."""


@dataclass(frozen=True)
class Outcome:
    """How a sitting ended."""

    run: Run
    status: str
    """finished, stopped (early) or interrupted."""
    reason: str


class Training:
    """One sitting of a run. Iterate it to train, a row of metrics at a time; leaving the loop saves the run and stops it."""

    def __init__(
        self,
        run: Run,
        config: Config,
        orchestrator: Orchestrator,
        *,
        quiet: bool,
        notes: list[str],
        stream: Any,
        past: Sequence[Mapping[str, float]] = (),
        held: ExitStack | None = None,
        resumed_from: Checkpoint | None = None,
        together: Together = ON_ITS_OWN,
    ) -> None:
        self.run, self.config, self.orchestrator, self._together = run, config, orchestrator, together
        self.outcome: Outcome | None = None
        self.signal: int | None = None
        """The signal that asked the run to stop, if one did; it has been answered by saving, and by nothing else."""
        self._quiet, self._notes, self._stream, self._past = quiet, notes, stream, past
        self._held, self._resumed_from = held, resumed_from
        self.listens_to_keys = False
        """Whether keys pressed on the terminal are answered; for commands, whose terminal it is."""
        self._generators = GlobalGenerators.now()
        self._store = run.checkpoints(config.checkpoint.keep, config.checkpoint.keep_best)

    def finish(self) -> Outcome:
        """Train to the end, or until something asks to stop."""
        for _ in self:
            pass
        assert self.outcome is not None
        return self.outcome

    def stop(self, reason: str = LEFT) -> None:
        """Ask the run to save itself and stop at the end of its cycle; from any thread."""
        self.orchestrator.interrupt(reason)

    def abandon(self) -> None:
        """Let go of a run that was made ready and is not going to be trained here; it can be resumed as any other."""
        self.orchestrator.close()
        self.run.update_status(status="interrupted")
        if self._held is not None:
            self._held.close()

    def __iter__(self) -> Iterator[Row]:
        run, config, orchestrator = self.run, self.config, self.orchestrator
        with ExitStack() as stack:
            stack.enter_context(run.lock() if self._held is None else self._held)
            log = stack.enter_context(tee_to(run.log_path))
            console = Console(self._stream, quiet=self._quiet or not config.logging.terminal, log=log.line)
            stack.callback(console.close)
            log.on_failure = alert = global_generators_kept()(partial(console.message, error=True))
            alerts = Alerts(alert)
            stack.enter_context(disk_failures_reported(run))
            run.remove_leftovers()
            run.update_status(status="running")
            rows = JsonlSink(run.metrics_path)
            watching = Watching(run, config, orchestrator, console, alerts, self._past)
            stack.callback(watching.close)
            others = optional_sinks(config, run, self._past, alerts, watching.rules.table.step_key)
            report = StatusReport(run, orchestrator, alerts, past=self._past)
            report.active_alerts = lambda: len(watching.monitor.active)
            sinks: list[Sink] = [watching.monitor, console, report, *others]
            group = SinkGroup(sinks, on_alert=alert, record=rows)
            stack.callback(group.close)
            store = self._store
            if self._resumed_from is not None and store.go_on_from(self._resumed_from):
                orchestrator.save_first()
            self._resumed_from = None
            save = _checkpoint_writer(self, store, rows, alerts)
            orchestrator.attach(sink=group, write_checkpoint=save, run_dir=run.path)
            here = orchestrator.workflow.context.config  # with this process's device
            orchestrator.add_callback(RecordMedia(orchestrator.workflow, here, run.videos, group, alert))
            if (every := config.logging.histograms_every_updates) > 0:
                orchestrator.add_callback(RecordHistograms(orchestrator.workflow, every, run.logs, group, alert))
            orchestrator.add_callback(SamplerNotices(orchestrator.collector, alert))
            orchestrator.add_callback(watching)
            console.start(run_facts.header(run, config, orchestrator, self._notes), past=self._past)
            keyboard = stack.enter_context(listening()) if self.listens_to_keys and not self._quiet else None
            if keyboard is not None:
                console.message(f"  {HELP}")
            heard = {"say": console.message, "alerts": alerts, "status": report, "keyboard": keyboard}
            attendant = Attendant(run, config, orchestrator, **heard, changed=partial(self._adopt, console))
            orchestrator.attend_with(attendant)
            orchestrator.on_long_evaluation = console.message
            report.refresh(at_once=True)
            status = "failed"
            try:
                with (
                    stopping_on_signals(partial(_interrupt, orchestrator, keyboard)) as received,
                    contextlib.suppress(GeneratorExit),
                ):
                    yield from self._rows(store, rows, console, watching)
                self.signal = received[0] if received else None
                done = orchestrator.is_complete
                status = "finished" if done else "interrupted" if orchestrator.was_interrupted else "stopped"
            except EnvironmentFailureError as error:
                orchestrator.stop_reason = orchestrator.stop_reason or str(error)
                told = f"{error}; run.log has the traceback" if error.details else str(error)
                raise EnvironmentFailureError(f"{told}\n{goes_on(run)}", details=error.details) from error
            except RankLostError as error:
                told = self._together.why_lost(error)
                orchestrator.stop_reason = told.partition("\n")[0]
                raise EtudeError(f"{told}\n{goes_on(run)}") from error
            except (MemoryError, RuntimeError) as error:
                told = out_of_memory(error)
                if told is None:
                    raise
                raise EtudeError(f"{told}; `{command('resume', run.path)}` goes on from the last save") from error
            except KeyboardInterrupt:
                status = "interrupted"
                raise
            except (OSError, CheckpointError) as error:
                orchestrator.stop_reason = orchestrator.stop_reason or f"{type(error).__name__}: {error}"
                raise
            finally:
                attendant.end()
                with alerts.about("environment", "the run itself is not touched by it"):
                    orchestrator.close()
                with alerts.about("summary.json", "metrics.jsonl and the checkpoints have it all"):
                    run.write_summary(run_facts.summary(self.config, orchestrator, status))
                with alerts.about("metrics.csv", "metrics.jsonl has the same rows"):
                    if run.metrics_path.exists():
                        write_csv(run.metrics_path, run.csv_path)
                # The last word: whoever is killed before it is resumed, and writes the others anew.
                with alerts.about("run.json", f"`{command('resume', run.path)}` sets it right"):
                    run.update_status(status=status, stop_reason=orchestrator.stop_reason)
                report.end(status)
                if config.logging.report:
                    with alerts.about("report.html", f"`{command('report', run.path)}` writes it anew"):
                        write_run_report(run.path)
            if group.keeps_results:
                with alerts.about("artifacts", "the run itself is not touched by it"):
                    group.write_results(run_results(run))
            group.flush()
            for hint in (no_update(orchestrator), bottleneck(orchestrator, assembly.execution_mode(config))):
                if hint is not None:
                    console.message(hint)
            reason = orchestrator.stop_reason or ""
            self.outcome = Outcome(run, status, reason)
            console.finish(run_facts.outcome(run, orchestrator, status, reason))

    def _adopt(self, console: Console, config: Config) -> None:
        """Go on with settings that were changed while it trains."""
        self.config = config
        console.change_header(run_facts.header(self.run, config, self.orchestrator, []))

    def _rows(self, store: CheckpointStore, sink: JsonlSink, console: Console, watching: Watching) -> Iterator[Row]:
        tries: Counter[str] = Counter()
        # What drew from them since the run was built (drawing on a terminal, opening sinks, the caller) is no part of it.
        self._generators.put_back()
        while True:
            try:
                yield from self.orchestrator.rows()
            except NonFiniteError as error:
                if self.config.training.on_nan != "rollback":
                    raise
                found = store.find(self._together.world.from_first(lambda: store.newest_whole().name))
                tries[found.name] += 1
                if tries[found.name] > MOST_ROLLBACKS:
                    raise
                told = self._roll_back(store, found, sink, str(error), tries[found.name])
                with global_generators_kept():
                    console.message(told, error=True)
                    watching.rolled_back(f"{told} (try {tries[found.name]} of {MOST_ROLLBACKS})")
            else:
                return

    def _roll_back(self, store: CheckpointStore, found: Checkpoint, sink: JsonlSink, reason: str, tries: int) -> str:
        """Go back to a save and on from there with other random numbers.

        Which ones follows from the save and the tries since: a run that was killed on the way tries them again, in the
        same order, and comes to the same end.
        """
        load_checkpoint(self.orchestrator, found, self.config, force=True)
        store.go_on_from(found)
        self.orchestrator.rollbacks += tries
        number = self._together.world.from_first(lambda: self.orchestrator.rollbacks)
        self.orchestrator.streams.branch(number)
        line = {"number": number, "to": found.name, "reason": reason}
        append_lines(self.run.logs / "rollbacks.jsonl", json.dumps(line))
        sink.supersede(found.metadata, self.run.logs / "superseded.jsonl")
        return f"{reason.partition(';')[0]}; rolled back to checkpoint {found.name}"


def _interrupt(orchestrator: Orchestrator, keyboard: Keyboard | None, reason: str) -> None:
    orchestrator.interrupt(reason, hurry=True)
    if keyboard is not None:
        keyboard.release()  # now: the next signal ends this process at once


def _checkpoint_writer(training: Training, store: CheckpointStore, rows: JsonlSink, alerts: Alerts) -> CheckpointWriter:
    run, orchestrator, fingerprint = training.run, training.orchestrator, provenance.fingerprint()

    def write(parts: dict[str, Any], counters: dict[str, int], metadata: dict[str, Any], *, best: bool) -> Path:
        config = training.config  # as it is now
        facts = {"workflow": config.algorithm.name, "config_hash": config_hash(config), "fingerprint": fingerprint}
        metadata = {**metadata, **facts, **rows.sync()}
        path = store.save(parts, counters=counters, metadata=metadata, best=best).path
        # The list of runs shows how far a living run has come.
        with alerts.about("summary.json", "tried again at the next save"):
            run.write_summary(run_facts.summary(config, orchestrator, "running"))
        if "shared" in parts:
            with alerts.about("metrics.csv", "tried again at the next save; metrics.jsonl has the same rows"):
                write_csv(run.metrics_path, run.csv_path)
        return path

    return write

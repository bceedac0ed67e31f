"""One sitting of training: the run directory, what watches it, and what happens when it ends."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.compute.devices import lack_of_memory_told, out_of_memory
from etude.compute.random_streams import GlobalGenerators, global_generators_kept
from etude.config import aliases, overrides
from etude.config.compose import Composition, compose
from etude.config.hashing import config_hash
from etude.config.layers import has
from etude.config.phases import unfed_problems
from etude.config.schema import Config
from etude.config.validate import to_plain, to_yaml
from etude.errors import CheckpointError, ConfigError, EnvironmentFailureError, EtudeError, NonFiniteError, UserError
from etude.files.regular import append_lines, own_folder
from etude.orchestration.inspection import Profile, bottleneck, no_update, watch_for_nan
from etude.orchestration.orchestrator import LEFT, CheckpointWriter, Orchestrator, Row
from etude.runs import own_code, provenance, trust
from etude.runs.checkpoint import CheckpointStore
from etude.runs.index import find_runs
from etude.runs.places import command
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint, fitting
from etude.runs.settings_files import HASH, settings_hash, write_changed_settings
from etude.telemetry.alerts import Alerts
from etude.telemetry.console import Console
from etude.telemetry.jsonl import NO_ROWS, JsonlSink, read_rows, supersede, write_csv
from etude.telemetry.metric_alerts import MetricAlerts
from etude.telemetry.run_log import tee_to
from etude.telemetry.sinks import Sink, SinkGroup
from etude.training import assembly, initial_weights, run_facts
from etude.training.record_media import RecordMedia
from etude.training.remarks import remarks, size_remarks
from etude.training.run_failures import disk_failures_reported, goes_on
from etude.training.run_sinks import alert_rules, check_sinks, optional_sinks
from etude.training.stop_signals import stopping_on_signals
from etude.training.stored_config import config_changes, load_config, migration_notes

EVALUATION_SEEDS = "evaluate command"
"""The purpose that seeds of evaluations on request derive from; training and the evaluations within it use others."""
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
    ) -> None:
        self.run, self.config, self.orchestrator = run, config, orchestrator
        self.outcome: Outcome | None = None
        self.signal: int | None = None
        """The signal that asked the run to stop, if one did; it has been answered by saving, and by nothing else."""
        self._quiet, self._notes, self._stream, self._past = quiet, notes, stream, past
        self._held, self._resumed_from = held, resumed_from
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
            rules, grace = alert_rules(config.logging.alerts), config.training.total_steps // 10
            watching = MetricAlerts(rules, console.message, self._past, not_before=grace)
            sinks: list[Sink] = [console, watching, *optional_sinks(config, run, self._past, alerts)]
            group = SinkGroup(sinks, on_alert=alert, record=rows)
            stack.callback(group.close)
            store = self._store
            if self._resumed_from is not None and store.go_on_from(self._resumed_from):
                orchestrator.save_first()
            self._resumed_from = None
            save = _checkpoint_writer(run, store, rows, config, orchestrator, alerts)
            orchestrator.attach(sink=group, write_checkpoint=save, run_dir=run.path)
            orchestrator.add_callback(RecordMedia(orchestrator.workflow, config, run.videos, group, alert))
            console.start(run_facts.header(run, config, orchestrator, self._notes), past=self._past)
            status = "failed"
            try:
                with stopping_on_signals(orchestrator.interrupt) as received, contextlib.suppress(GeneratorExit):
                    yield from self._rows(store, rows, console)
                self.signal = received[0] if received else None
                done = orchestrator.scheduler.is_finished
                status = "finished" if done else "interrupted" if orchestrator.was_interrupted else "stopped"
            except EnvironmentFailureError as error:
                orchestrator.stop_reason = orchestrator.stop_reason or str(error)
                told = f"{error}; run.log has the traceback" if error.details else str(error)
                raise EnvironmentFailureError(f"{told}\n{goes_on(run)}", details=error.details) from error
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
                with alerts.about("environment", "the run itself is not touched by it"):
                    orchestrator.close()
                with alerts.about("summary.json", "metrics.jsonl and the checkpoints have it all"):
                    run.write_summary(run_facts.summary(config, orchestrator, status))
                with alerts.about("metrics.csv", "metrics.jsonl has the same rows"):
                    if run.metrics_path.exists():
                        write_csv(run.metrics_path, run.csv_path)
                # The last word: whoever is killed before it is resumed, and writes the others anew.
                with alerts.about("run.json", f"`{command('resume', run.path)}` sets it right"):
                    run.update_status(status=status, stop_reason=orchestrator.stop_reason)
            group.flush()
            for hint in (no_update(orchestrator), bottleneck(orchestrator, assembly.execution_mode(config))):
                if hint is not None:
                    console.message(hint)
            reason = orchestrator.stop_reason or ""
            self.outcome = Outcome(run, status, reason)
            console.finish(run_facts.outcome(run, orchestrator, status, reason))

    def _rows(self, store: CheckpointStore, sink: JsonlSink, console: Console) -> Iterator[Row]:
        tries: Counter[str] = Counter()
        # What drew from them since the run was built (drawing on a terminal, opening sinks, the caller) is no part of it.
        self._generators.put_back()
        while True:
            try:
                yield from self.orchestrator.rows()
            except NonFiniteError as error:
                if self.config.training.on_nan != "rollback":
                    raise
                found = store.newest_whole()
                tries[found.name] += 1
                if tries[found.name] > MOST_ROLLBACKS:
                    raise
                told = self._roll_back(store, found, sink, str(error), tries[found.name])
                with global_generators_kept():
                    console.message(told, error=True)
            else:
                return

    def _roll_back(self, store: CheckpointStore, found: Checkpoint, sink: JsonlSink, reason: str, tries: int) -> str:
        """Go back to a save and on from there with other random numbers.

        Which ones follows from the save and the tries since: a run that was killed on the way tries them again, in the
        same order, and comes to the same end.
        """
        _load(self.orchestrator, found, self.config, force=True)
        store.go_on_from(found)
        self.orchestrator.rollbacks += tries
        number = self.orchestrator.rollbacks
        self.orchestrator.streams.branch(number)
        line = {"number": number, "to": found.name, "reason": reason}
        append_lines(self.run.logs / "rollbacks.jsonl", json.dumps(line))
        sink.supersede(found.metadata, self.run.logs / "superseded.jsonl")
        return f"{reason.partition(';')[0]}; rolled back to checkpoint {found.name}"


@lack_of_memory_told()
def start(
    composition: Composition,
    *,
    root: Path,
    quiet: bool = False,
    command: Sequence[str] = (),
    stream: Any = None,
    debug: bool = False,
    profile: int = 0,
    tell: Callable[[str], None] = lambda step: None,
) -> Training:
    """Begin a new run. Everything that can be wrong with the request is found before it exists.

    `debug` checks every module's output and every gradient; `profile` is the number of cycles to trace.
    `tell` is called with what is being done, where it may take a while.
    """
    config = assembly.resolve(composition.config)
    source = None if config.experiment.init_from is None else initial_weights.find_source(config.experiment.init_from, root)
    if source is not None:
        # By its path: where a word such as @last points changes.
        config = replace(config, experiment=replace(config.experiment, init_from=str(source.path.resolve())))
    tell("building environments and networks")
    orchestrator = assembly.build(config, folder=root.resolve())
    notes = [*(f"read as: {note}" for note in composition.notes), *remarks(config, composition.config)]
    notes += size_remarks(orchestrator.workflow)
    notes += [note for buffer in orchestrator.buffers.values() for note in buffer.notes()]
    notes += [note for note in [no_update(orchestrator)] if note is not None]
    facts = run_facts.facts(config)
    if source is not None:
        notes += initial_weights.take_over(orchestrator.workflow, source)
        facts["initial_weights"] = initial_weights.identity(source)
    if debug:
        watch_for_nan(orchestrator)
    if profile:
        orchestrator.add_callback(Profile(profile))
    check_sinks(config)
    trust.check_key()
    if problems := list(unfed_problems(orchestrator.scheduler.phases)):
        raise ConfigError(*problems)
    orchestrator.begin()
    resolved_yaml = run_facts.resolved_yaml(config, orchestrator)
    facts[HASH] = settings_hash(resolved_yaml)

    def furnish(path: Path) -> None:
        provenance.capture(path, cwd=Path.cwd(), command=list(command), ignore=[root])
        trust.sign(path)

    run = Run.create(
        root,
        **run_facts.names(config),
        config_yaml=to_yaml(composition.asked),
        resolved_yaml=resolved_yaml,
        facts=facts,
        furnish=furnish,
    )
    return Training(run, config, orchestrator, quiet=quiet, notes=notes, stream=stream)


@lack_of_memory_told()
def reopen(
    run: Run,
    *,
    words: Sequence[str] = (),
    checkpoint: str | None = None,
    trusted: bool = False,
    force: bool = False,
    quiet: bool = False,
    command_line: Sequence[str] = (),
    stream: Any = None,
    tell: Callable[[str], None] = lambda step: None,
) -> Training:
    """Make ready to continue a run from its newest whole checkpoint (or the one named), to the same end.

    `force` loads a checkpoint of another workflow if its state fits.
    """
    with disk_failures_reported(run), ExitStack() as held:
        held.enter_context(run.lock())
        run.require_own_folders()
        before = load_config(run, trusted=trusted)
        config = before
        if words:
            base = _with_budget_in_steps(to_plain(before), words)
            composition = compose(None, words=words, base=base, allow_imports=trusted or trust.is_own(run.path))
            config = assembly.resolve(composition.config)
        changes = config_changes(before, config)
        _refuse_what_is_past(before, config, run)
        store = run.checkpoints(config.checkpoint.keep)
        notes = [*migration_notes(run), *(f"changed: {change}" for change in changes)]
        found = None
        if checkpoint is not None or not _is_unsaved(run):
            found = store.newest_whole() if checkpoint is None else store.find(checkpoint)
            if found.kind != "full":
                raise UserError(f"checkpoint {found.name} holds only the policy; training can go on from a full one")
        tell("building environments and networks")
        orchestrator = assembly.build(config, folder=run.path.resolve().parent)
        check_sinks(config)
        if found is None:
            notes += ["it ended before its first save, and begins anew", *_begin(orchestrator, run, config)]
        else:
            tell(f"reading checkpoint {found.name}")
            notes += [f"resumed from checkpoint {found.name}", *_load(orchestrator, found, config, force=force)]
        # One that was killed between its last save and its last word has that word still to say.
        if orchestrator.scheduler.is_finished and run.status == "finished":
            raise UserError(_is_finished(run, config, orchestrator))
        if changes:
            _record_changes(run, config, orchestrator, changes)
        notes += _changed_code(run, trusted=trusted, command=command_line)
        # Before its rows move: killed from here on, it is a run to be resumed, whatever it was.
        run.update_status(status="running")
        moved = supersede(run.metrics_path, NO_ROWS if found is None else found.metadata, run.logs / "superseded.jsonl")
        if moved:
            notes.append(f"{moved} rows logged after that checkpoint were moved to logs/superseded.jsonl")
        past = read_rows(run.metrics_path) if run.metrics_path.exists() else []
        return Training(
            run,
            config,
            orchestrator,
            quiet=quiet,
            notes=notes,
            stream=stream,
            past=past,
            held=held.pop_all(),
            resumed_from=found,
        )


def _changed_code(run: Run, *, trusted: bool, command: Sequence[str]) -> list[str]:
    """Say which of the user's modules are others than in the last sitting, and note those of this one."""
    if not (trusted or trust.is_own(run.path)):
        return []  # finding a module may import its package, and nothing of a stranger's run is imported
    folder, number = own_code.newest_provenance(run.path)
    changed = own_code.changed_modules(folder)
    if not changed:
        return []
    target = own_folder(own_folder(run.path / own_code.SITTINGS) / str(number + 1))
    provenance.capture(target, cwd=Path.cwd(), command=list(command), ignore=[run.path.parent])
    return [own_code.describe(changed, run.id), f"the code of this sitting is noted in {own_code.SITTINGS}/{target.name}"]


def _with_budget_in_steps(base: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The settings of a run whose budget was given in iterations, where words give it in steps from here on."""
    asked, _ = aliases.normalize(overrides.parse(words).values)
    if has(asked, "training.total_steps") and not has(asked, "training.iterations"):
        base["training"]["iterations"] = None
    return base


def _is_finished(run: Run, config: Config, orchestrator: Orchestrator) -> str:
    """Say that there is nothing left to do, and which word would give more to do."""
    training, done = config.training, orchestrator.counters.env_steps
    said = f"run {run.id} is finished ({done:,} environment steps)"
    if not orchestrator.scheduler.ended_by_budget:
        return f"{said}: its phases are over, whatever the budget; to train on, add to training.phases"
    more = 2 * max(done, training.total_steps)
    word = f"training.total_steps={more}"
    if training.iterations is not None:
        word = f"training.iterations={-(-more // (training.total_steps // training.iterations))}"
    return f"{said}; to train on, raise the budget: {command('resume', run.path, word)}"


def train(composition: Composition, **options: Any) -> Outcome:
    """Start a new run and train it to its end; the options are those of `start`."""
    return start(composition, **options).finish()


def resume(run: Run, **options: Any) -> Outcome:
    """Continue a run to its end; the options are those of `reopen`."""
    return reopen(run, **options).finish()


def find_unfinished(composition: Composition, root: Path) -> Run | None:
    """Return the newest run under `root` with these very settings, name and group, if there is one to go on with.

    One that finished is returned too, for there is nothing left to do; one that died before its first save is not.
    """
    config = assembly.resolve(composition.config)
    asked = {"config_hash": config_hash(config), "name": run_facts.name(config), "group": config.experiment.group}
    if not root.is_dir():
        return None
    for found in find_runs(root, **asked):
        run = Run.open(found.path)
        if run.status == "finished" or any(saved.kind == "full" for saved in run.checkpoints().list()):
            return run
    return None


def _checkpoint_writer(
    run: Run, store: CheckpointStore, rows: JsonlSink, config: Config, orchestrator: Orchestrator, alerts: Alerts
) -> CheckpointWriter:
    facts = {"workflow": config.algorithm.name, "config_hash": config_hash(config), "fingerprint": provenance.fingerprint()}

    def write(parts: dict[str, Any], counters: dict[str, int], metadata: dict[str, Any], *, best: bool) -> Path:
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


def _is_unsaved(run: Run) -> bool:
    """Whether the run was killed before its first save: it has no rows then, and had no checkpoints that were removed."""
    has_rows = run.metrics_path.exists() and run.metrics_path.stat().st_size > 0
    return not has_rows and not run.checkpoints().list() and run.why_no_checkpoints is None


def _begin(orchestrator: Orchestrator, run: Run, config: Config) -> list[str]:
    """Put a run that exists at its beginning, as `start` did."""
    notes = []
    if config.experiment.init_from is not None:
        source = initial_weights.find_source(config.experiment.init_from, run.path.parent)
        if initial_weights.identity(source) != run.record.get("initial_weights"):
            raise UserError(f"experiment.init_from: {source.path} is not what it was when run {run.id} was started")
        notes += initial_weights.take_over(orchestrator.workflow, source)
    orchestrator.begin()
    return notes


def _load(orchestrator: Orchestrator, found: Checkpoint, config: Config, *, force: bool = False) -> list[str]:
    workflow = found.metadata.get("workflow")
    if workflow != config.algorithm.name and not force:
        raise EtudeError(
            f"checkpoint {found.name} is of {workflow}, this run's config says {config.algorithm.name}; "
            "--force loads it all the same, if it fits"
        )
    with fitting(found, "this config"), lack_of_memory_told():
        notes = orchestrator.load_state_dict(found.load(device="cpu"))
    then, now = found.metadata.get("fingerprint"), provenance.fingerprint()
    differing = [key for key in now if isinstance(then, dict) and json.dumps(then.get(key)) != json.dumps(now[key])]
    if differing:
        notes.append(f"saved under another {', '.join(differing)}: the run goes on, but its last bits may differ")
    return notes


def _refuse_what_is_past(before: Config, after: Config, run: Run) -> None:
    """Settings that only a run's beginning reads: changed later they would say what is not so."""
    for key in ("seed", "init_from"):
        old, new = getattr(before.experiment, key), getattr(after.experiment, key)
        if old != new:
            raise UserError(
                f"experiment.{key}={new}: run {run.id} began with {old}, and that can't be changed; start a new run instead"
            )


def _record_changes(run: Run, config: Config, orchestrator: Orchestrator, changes: list[str]) -> None:
    own = trust.is_own(run.path)
    settings = run_facts.resolved_yaml(config, orchestrator)
    if own:
        trust.sign_ahead(run.path, settings)
    write_changed_settings(run, settings, at=orchestrator.counters.as_dict(), changes=changes)
    run.update_status(**run_facts.facts(config), **run_facts.names(config))
    if own:
        trust.sign(run.path)

"""One sitting of training: the run directory, what watches it, and what happens when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.compute.devices import lack_of_memory_told
from etude.config.compose import Composition
from etude.config.hashing import config_hash
from etude.config.phases import unfed_problems
from etude.config.schema import Config
from etude.config.validate import to_yaml
from etude.errors import ConfigError, UserError
from etude.files.regular import own_folder
from etude.orchestration.inspection import Profile, no_update
from etude.orchestration.nan_trace import watch_for_nan
from etude.orchestration.orchestrator import Orchestrator
from etude.runs import own_code, provenance, trust
from etude.runs.index import find_runs
from etude.runs.places import command
from etude.runs.run import Run
from etude.runs.settings_files import HASH, settings_hash
from etude.telemetry.jsonl import NO_ROWS, read_rows, supersede
from etude.telemetry.silence import CHECKPOINT_PRINTS, is_silenced
from etude.training import assembly, initial_weights, run_facts
from etude.training.changed_settings import changed_config, record_changes
from etude.training.checkpoint_loading import load_checkpoint
from etude.training.following import Following
from etude.training.remarks import remarks, size_remarks
from etude.training.run_failures import disk_failures_reported
from etude.training.run_sinks import check_sinks
from etude.training.sitting import Outcome as Outcome
from etude.training.sitting import Training as Training
from etude.training.stored_config import config_changes, load_config, migration_notes, use_robot_of
from etude.training.together import ON_ITS_OWN, Together
from etude.training.watching import check_rules, keep_rules

EVALUATION_SEEDS = "evaluate command"
"""The purpose that seeds of evaluations on request derive from; training and the evaluations within it use others."""


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
    together: Together = ON_ITS_OWN,
) -> Training:
    """Begin a new run. Everything that can be wrong with the request is found before it exists.

    `debug` checks every module's output and every gradient; `profile` is the number of cycles to trace.
    `tell` is called with what is being done, where it may take a while. Of several processes that train `together` the first
    has the run, and the others follow it.
    """
    config, world = assembly.resolve(composition.config), together.world
    together.require(config)
    source = None if config.experiment.init_from is None else initial_weights.find_source(config.experiment.init_from, root)
    if source is not None:
        # By its path: where a word such as @last points changes.
        config = replace(config, experiment=replace(config.experiment, init_from=str(source.path.resolve())))
    tell("building environments and networks")
    orchestrator = assembly.build(assembly.of_this_rank(config), world=world, folder=root.resolve())
    notes = [*(f"read as: {note}" for note in composition.notes), *remarks(config, composition.config)]
    reason = assembly.why_this_mode(replace(composition.config, training=config.training))
    notes += [reason] if reason is not None else []
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
    check_rules(config)
    trust.check_key()
    brought = [name for name, buffer in orchestrator.buffers.items() if buffer.spaces is not None]
    if problems := list(unfed_problems(orchestrator.scheduler.phases, brought)):
        raise ConfigError(*problems)
    orchestrator.begin()
    world.wait()  # a run that one of them can't train is none
    if not world.is_first:
        return Following(Run.open(together.run_of_first(None)), config, orchestrator, together)
    resolved_yaml = run_facts.resolved_yaml(config, orchestrator, reason)
    facts[HASH] = settings_hash(resolved_yaml)

    def furnish(path: Path) -> None:
        keep_rules(path, config)
        provenance.capture(path, cwd=Path.cwd(), command=list(command), ignore=[root])
        if config.environment.robot is not None:
            from etude.robots.models.stored_files import store_robot  # which most runs have no need of

            store_robot(config.environment.robot, path / "provenance")
        trust.sign(path)

    run = Run.create(
        root,
        **run_facts.names(config),
        config_yaml=to_yaml(composition.asked),
        resolved_yaml=resolved_yaml,
        facts=facts,
        furnish=furnish,
    )
    together.run_of_first(run.path)
    return Training(run, config, orchestrator, quiet=quiet, notes=notes, stream=stream, together=together)


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
    together: Together = ON_ITS_OWN,
) -> Training:
    """Make ready to continue a run from its newest whole checkpoint (or the one named), to the same end.

    `force` loads a checkpoint of another workflow if its state fits.
    """
    world = together.world
    with disk_failures_reported(run), ExitStack() as held:
        if world.is_first:
            held.enter_context(run.lock())
        run.require_own_folders()
        before = load_config(run, trusted=trusted)
        config = before
        if words:
            config = changed_config(before, words, run, trusted=trusted)
        robot_notes = use_robot_of(run, config)
        changes = config_changes(before, config)
        _refuse_what_is_past(before, config, run)
        together.require(config)
        store = run.checkpoints(config.checkpoint.keep)
        notes = [*migration_notes(run), *(f"changed: {change}" for change in changes), *robot_notes]
        found = None
        if world.from_first(lambda: checkpoint is not None or not _is_unsaved(run)):
            # Which the first has looked at is whole.
            name = world.from_first(lambda: (store.newest_whole() if checkpoint is None else store.find(checkpoint)).name)
            found = store.find(name)
            if found.kind != "full":
                raise UserError(f"checkpoint {found.name} holds only the policy; training can go on from a full one")
        tell("building environments and networks")
        orchestrator = assembly.build(assembly.of_this_rank(config), world=world, folder=run.path.resolve().parent)
        check_sinks(config)
        if found is None:
            notes += ["it ended before its first save, and begins anew", *_begin(orchestrator, run, config)]
        else:
            if not is_silenced(CHECKPOINT_PRINTS):
                tell(f"reading checkpoint {found.name}")
                notes.append(f"resumed from checkpoint {found.name}")
            notes += load_checkpoint(orchestrator, found, config, force=force)
        # One that was killed between its last save and its last word has that word still to say.
        if orchestrator.is_complete and run.status == "finished":
            raise UserError(_is_finished(run, config, orchestrator))
        world.wait()
        together.run_of_first(run.path)
        if not world.is_first:
            return Following(run, config, orchestrator, together)
        if config.logging.rules != before.logging.rules:
            check_rules(config)
            keep_rules(run.path, config)
        if changes:
            record_changes(run, config, orchestrator, changes)
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
            together=together,
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


def find_unfinished(composition: Composition, root: Path, together: Together = ON_ITS_OWN) -> Run | None:
    """Return the newest run under `root` with these very settings, name and group, if there is one to go on with.

    One that finished is returned too, for there is nothing left to do; one that died before its first save is not.
    """
    found = together.world.from_first(lambda: (run := _unfinished(composition, root)) and str(run.path))
    return None if found is None else Run.open(Path(found))


def _unfinished(composition: Composition, root: Path) -> Run | None:
    config = assembly.resolve(composition.config)
    asked = {"config_hash": config_hash(config), "name": run_facts.name(config), "group": config.experiment.group}
    if not root.is_dir():
        return None
    for found in find_runs(root, **asked):
        run = Run.open(found.path)
        if run.status == "finished" or any(saved.kind == "full" for saved in run.checkpoints().list()):
            return run
    return None


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


def _refuse_what_is_past(before: Config, after: Config, run: Run) -> None:
    """Settings that only a run's beginning reads: changed later they would say what is not so."""
    for key in ("seed", "init_from", "processes"):
        old, new = getattr(before.experiment, key), getattr(after.experiment, key)
        if old != new:
            raise UserError(
                f"experiment.{key}={new}: run {run.id} began with {old}, and that can't be changed; start a new run instead"
            )

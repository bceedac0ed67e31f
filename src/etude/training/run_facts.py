"""What a run says of itself: in its files, above it and below it on the console."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from etude.compute.accelerate import is_compiled
from etude.config.hashing import config_hash
from etude.config.schema import Config
from etude.config.validate import to_plain, to_yaml
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.naming import expand_name
from etude.runs.places import command
from etude.runs.run import Run
from etude.telemetry.console import RunHeader, RunOutcome
from etude.training import assembly
from etude.training.evaluation import evaluation_modes


def name(config: Config) -> str:
    """What people call the run; its id begins with the time and ends with this."""
    experiment = config.experiment
    fields = {
        "environment": config.environment.id,
        "algorithm": config.algorithm.name,
        "seed": experiment.seed,
        "group": experiment.group,
        "project": experiment.project,
    }
    template = experiment.name or "{environment}-{algorithm}"
    return expand_name(template if "{seed}" in template else f"{template}-s{{seed}}", fields)


def names(config: Config) -> dict[str, Any]:
    """What a run is called and belongs to, as its record says."""
    experiment = config.experiment
    return {"name": name(config), "group": experiment.group, "tags": list(experiment.tags)}


def facts(config: Config) -> dict[str, Any]:
    """What a list of runs shows of this config."""
    return {
        "environment": config.environment.id,
        "algorithm": config.algorithm.name,
        "seed": config.experiment.seed,
        "total_steps": config.training.total_steps,
        "config_hash": config_hash(config),
        # Equal for runs that differ in nothing but the seed: what belongs together in statistics.
        "setup_hash": config_hash(config, with_seed=False),
    }


def resolved_yaml(config: Config, orchestrator: Orchestrator, reason: str | None = None) -> str:
    """Every concrete value of a run, what the machine decided included, and the reason for how updates run."""
    assert orchestrator.collector is not None
    environment = orchestrator.collector.environment
    facts = {"backend": type(environment).__name__, "mode": assembly.execution_mode(config), "snapshot": environment.snapshot}
    if reason is not None:
        facts["why"] = reason
    stores = {
        name: options if (capacity := orchestrator.buffers[name].reduced_to) is None else replace(options, capacity=capacity)
        for name, options in config.buffers.items()
    }
    config = replace(config, buffers=stores)
    return to_yaml({**to_plain(config), "_resolved": facts})


def summary(config: Config, orchestrator: Orchestrator, status: str) -> dict[str, Any]:
    """The results so far, for ``summary.json``."""
    elapsed_s, best = orchestrator.stopwatch.elapsed_s, orchestrator.best
    return {
        "version": 1,
        **facts(config),
        "status": status,
        "stop_reason": orchestrator.stop_reason,
        "counters": orchestrator.counters.as_dict(),
        "progress": orchestrator.scheduler.reading().fraction,
        "elapsed_s": elapsed_s,
        "steps_per_second": orchestrator.counters.env_steps / elapsed_s if elapsed_s else None,
        "best": {
            "metric": best.monitor.metric,
            "mode": best.monitor.mode,
            "value": best.value,
            "env_steps": best.env_steps,
            "updates": best.updates,
        },
        "last_evaluation": orchestrator.last_evaluation,
        "evaluation_mode": list(evaluation_modes(config)),
    }


def header(run: Run, config: Config, orchestrator: Orchestrator, notes: list[str]) -> RunHeader:
    """What the console shows above a run."""
    if orchestrator.counters.env_steps:
        notes = [*notes, f"continues at {orchestrator.counters.env_steps:,} environment steps"]
    clock = orchestrator.scheduler.clock
    mode = assembly.execution_mode(config)
    if is_compiled(mode):
        notes = [*notes, "updates are compiled when the first one is due, which can take half a minute"]
    return RunHeader(
        run_id=run.id,
        run_dir=run.path,
        environment=config.environment.id,
        algorithm=config.algorithm.name,
        device=config.experiment.device,
        mode=mode,
        seed=config.experiment.seed,
        num_envs=config.environment.num_envs,
        total_steps=config.training.total_steps if clock.by_budget else clock.steps or None,
        total_updates=clock.updates or None,
        phases=[phase.name for phase in orchestrator.scheduler.phases],
        notes=notes,
    )


def outcome(run: Run, orchestrator: Orchestrator, status: str, reason: str) -> RunOutcome:
    """What the console shows below it."""
    again = command("resume", run.path)
    more = command("resume", run.path, f"training.total_steps={2 * orchestrator.scheduler.total_steps}")
    measure = command("evaluate", run.path, "--episodes", "100")
    counts_updates = bool(orchestrator.scheduler.clock.updates)
    scheduler = orchestrator.scheduler
    acts = any(phase.collects for phase in scheduler.phases)
    grows = acts and (scheduler.ended_by_budget or not scheduler.is_finished)  # elsewhere a larger budget is no more
    return RunOutcome(
        status=status,  # type: ignore[arg-type] # one of the four words
        reason=reason,
        run_id=run.id,
        run_dir=run.path,
        best=orchestrator.best.value,
        best_at=orchestrator.best.env_steps,
        best_updates=orchestrator.best.updates if counts_updates else None,
        last_eval=orchestrator.last_evaluation.get(orchestrator.best.monitor.metric),
        elapsed_s=orchestrator.stopwatch.elapsed_s,
        env_steps=orchestrator.counters.env_steps,
        updates=orchestrator.counters.updates if counts_updates else None,
        next_commands=[again] if status in ("interrupted", "stopped") else [measure, *([more] if grows else [])],
    )

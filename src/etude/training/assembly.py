"""Builds a run from its config: environment, networks, buffers, workflow, loop. All wiring is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import torch

from etude.acting.policy import Policy
from etude.buffers.base import Buffer
from etude.components.networks.build import build_networks
from etude.compute.accelerate import SETTINGS, Mode, choose_mode, is_captured, is_compiled, why
from etude.compute.devices import devices_of_ranks, pick_device, set_up
from etude.compute.kept_code import is_kept
from etude.compute.random_streams import RandomStreams, derive_seed, seed_global_generators
from etude.compute.world import ALONE, World
from etude.config.hooks import hooks_of
from etude.config.phases import PhaseSpec, default_hooks, parse_phases, phase_problems
from etude.config.registry import algorithms, buffers, callbacks
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.make import make_environment
from etude.environments.space_data import check_spaces
from etude.environments.unplayed import Unplayed
from etude.environments.vector import VectorEnvironment
from etude.errors import ConfigError, UserError
from etude.orchestration.cadences import Cadences
from etude.orchestration.callbacks import Callback, EarlyStop
from etude.orchestration.clock import Clock
from etude.orchestration.orchestrator import Orchestrator
from etude.orchestration.phase_scheduler import PhaseScheduler
from etude.training.build_samplers import build_remote_collector, sampler_problems
from etude.training.evaluation import EVENTS_PER_RUN, build_evaluator, build_monitor, evaluation_cadence
from etude.workflows.base import Components, Context, Workflow
from etude.workflows.collector import Collector

ROWS_PER_RUN = 200


def resolve(config: Config) -> Config:
    """Fill in every setting that was left to the machine or to the budget, so that a resume decides nothing anew."""
    training = config.training
    if training.iterations is not None:
        total = training.iterations * steps_per_iteration(config)
        if total >= 2**63:
            raise ConfigError(
                f"training.iterations={training.iterations}: is too large: {total:,} steps don't fit into 64 bits"
            )
        training = replace(training, total_steps=total)
        config = replace(config, training=training)
    total = training.total_steps
    event, row = max(1, total // EVENTS_PER_RUN), max(1, total // ROWS_PER_RUN)
    experiment, evaluation, checkpoint = config.experiment, config.evaluation, config.checkpoint
    workflow = _workflow_class(config)
    if experiment.processes > 1:
        workflow.require_ranks(config.algorithm.name)
    if config.environment.samplers and (problems := list(sampler_problems(config, workflow))):
        raise ConfigError(*problems)
    device = pick_device(experiment.device)
    compiling = SETTINGS[_mode(experiment.compile, device, workflow, config)]
    placed = str(device) if experiment.processes == 1 else devices_of_ranks(experiment.device, experiment.processes)
    if evaluation.mode == "auto":
        evaluation = replace(evaluation, mode=workflow.evaluation_mode)
    if updates := Clock(_phases(config, workflow), total).updates:  # where steps stand still, and with them their grids
        each = max(1, updates // EVENTS_PER_RUN)
        evaluation, checkpoint = (
            replace(part, every_updates=each if part.every_steps != 0 else 0) if part.every_updates is None else part
            for part in (evaluation, checkpoint)
        )
    return replace(
        config,
        experiment=replace(experiment, device=placed, threads=experiment.threads or 1, compile=compiling),
        evaluation=replace(evaluation, every_steps=evaluation_cadence(config, total)),
        checkpoint=replace(checkpoint, every_steps=event if checkpoint.every_steps is None else checkpoint.every_steps),
        logging=replace(config.logging, every_steps=config.logging.every_steps or row),
    )


def steps_per_iteration(config: Config) -> int:
    """Return the environment steps of one pass of collecting and learning."""
    phases = [[hook for hook in phase.hooks if hook.collects] for phase in _phases(config, _workflow_class(config))]
    counts = {sum(hook.count for hook in collecting) for collecting in phases if collecting}
    if len(counts) != 1 or any(hook.every != 1 or hook.ratio is not None for collecting in phases for hook in collecting):
        raise ConfigError(
            f"training.iterations={config.training.iterations}: not every pass of these phases collects the same; "
            "set training.total_steps instead"
        )
    # Which alone knows how often it repeats an action.
    environment = make_environment(replace(config.environment, workers=0), num_envs=1)
    try:
        return counts.pop() * config.environment.num_envs * config.experiment.processes * environment.action_repeat
    finally:
        environment.close()


def execution_mode(config: Config) -> Mode:
    """Return how a resolved config's updates run."""
    workflow = _workflow_class(config)
    device = config.experiment.device.partition(",")[0]  # the ranks' are all of one kind
    return _mode(config.experiment.compile, torch.device(device), workflow, config)


def of_this_rank(config: Config) -> Config:
    """Return a resolved config with the devices that are this process's own."""
    device = str(pick_device(config.experiment.device))
    stores = {name: _buffer_of_this_rank(options, name) for name, options in config.buffers.items()}
    return replace(config, experiment=replace(config.experiment, device=device), buffers=stores)


def _buffer_of_this_rank(options: Any, name: str) -> Any:
    listed = getattr(options, "device", "auto")
    return replace(options, device=str(pick_device(listed, where=f"buffers.{name}.device"))) if "," in listed else options


def _simulator_device(config: Config, learner: torch.device) -> torch.device:
    wanted = config.environment.device
    if wanted == "auto":
        return learner
    if config.environment.robot is None and config.environment.backend != "torch":
        raise UserError(
            f"environment.device={wanted}: only robots and tasks of tensors (environment.backend=torch) are stepped on a "
            "device; leave it at auto"
        )
    return pick_device(wanted, where="environment.device")


def _mode(wanted: str, device: torch.device, workflow: type[Workflow], config: Config) -> Mode:
    if config.experiment.processes > 1:
        if wanted in ("on", "capture", "numpy"):
            raise UserError(
                f"experiment.compile={wanted}: not with experiment.processes={config.experiment.processes}, whose gradients "
                "meet between loss and step; set it to off or auto"
            )
        return "eager"
    steps, repays = workflow.gradient_steps(config), workflow.repays_compiling(config)
    written, kept = workflow.is_written(config), wanted == "auto" and _is_kept(device, workflow, config)
    on_gpu = workflow.compiles_on_gpu
    return choose_mode(wanted, device, steps, repays, compiles_on_gpu=on_gpu, is_written=written, is_kept=kept)


def _is_kept(device: torch.device, workflow: type[Workflow], config: Config) -> bool:
    """Whether this machine has compiled updates of a config before, and kept them."""
    experiment = config.experiment
    here = replace(config, experiment=replace(experiment, device=str(device), threads=experiment.threads or 1))
    key = workflow.code_key(here) if device.type == "cpu" and workflow.gradient_steps(config) else None
    return key is not None and is_kept(key)


def why_this_mode(asked: Config) -> str | None:
    """Say how updates run where that was left to us, and why; None where somebody said how."""
    if asked.experiment.compile != "auto" or asked.experiment.processes > 1:
        return None
    device, workflow = pick_device(asked.experiment.device), _workflow_class(asked)
    mode, steps = _mode("auto", device, workflow, asked), workflow.gradient_steps(asked)
    if not steps:
        return None
    kept = _is_kept(device, workflow, asked)
    return f"updates are {mode}: {why(mode, device, steps, workflow.repays_compiling(asked), is_kept=kept)}"


def acts_captured(config: Config) -> bool:
    """Return whether a resolved config's policies act as CUDA graphs, where they can."""
    return is_captured(execution_mode(config))


def build(
    config: Config, *, environment: VectorEnvironment | None = None, world: World = ALONE, folder: Path | None = None
) -> Orchestrator:
    """Build the loop of a resolved config, ready to run or to load a checkpoint; fails before anything is written.

    In a world of several processes each builds its own, with environments and experience of its own. `folder` is where buffers
    may keep files that outgrow memory.
    """
    experiment = config.experiment
    device = torch.device(experiment.device)
    set_up(
        experiment.threads or 1,
        experiment.deterministic,
        device=device,
        memory_fraction=experiment.memory_fraction,
        tf32=experiment.tf32,
    )
    seed_global_generators(experiment.seed if world.is_first else derive_seed(experiment.seed, world.part))
    workflow_class = _workflow_class(config)
    phases = _phases(config, workflow_class)
    streams = RandomStreams(experiment.seed, device, world.rank)
    stores = {name: _build_buffer(options, config, name) for name, options in config.buffers.items()}
    environment = environment or _unplayed(config, phases, stores)
    if config.environment.samplers:
        collector = build_remote_collector(config, streams, device)
        environment = collector.environment
    else:
        simulator, mode = _simulator_device(config, device), execution_mode(config)
        captures, compiles = is_captured(mode), is_captured(mode) and is_compiled(mode)
        environment = environment or make_environment(
            config.environment, training=True, device=simulator, capture=captures, compiles=compiles
        )
        collector = Collector(environment, streams, device, keep_paths=config.training.keep_paths)
    _check_described(config, environment)
    _check_buffers(stores, phases, workflow_class, config)
    added = workflow_class.extra_columns(config, environment.single_observation_space, environment.single_action_space)
    for store in stores.values():
        if folder is not None:
            store.keep_files_in(folder)
        store.expect(added)
        store.bind(environment)
    workflow = build_workflow(
        config,
        environment.single_observation_space,
        environment.single_action_space,
        streams=streams,
        buffers=stores,
        collector=collector,
        world=world,
    )
    return Orchestrator(
        workflow=workflow,
        scheduler=PhaseScheduler(
            phases,
            total_steps=config.training.total_steps,
            steps_per_count=environment.num_envs * environment.action_repeat * world.size,
        ),
        collector=collector,
        buffers=stores,
        streams=streams,
        cadences=cadences(config),
        world=world,
        evaluator=build_evaluator(config, device, phases, captured=acts_captured(config)),
        callbacks=_callbacks(config, environment),
        monitor=build_monitor(config),
    )


def _unplayed(config: Config, phases: Sequence[PhaseSpec], stores: Mapping[str, Buffer]) -> VectorEnvironment | None:
    """Return what stands in for the environment where no phase acts in it and a buffer brings its spaces along; else None.

    Then nothing of the task needs to be installed, unless it is evaluated: that it fits is looked at before the run begins.
    """
    brought = next((store for store in stores.values() if store.spaces is not None), None)
    if brought is None or brought.spaces is None or any(phase.collects for phase in phases):
        return None
    if build_evaluator(config, torch.device("cpu"), phases, captured=False) is not None:
        task = make_environment(config.environment, num_envs=1)
        try:
            brought.check_fits(task, config.environment.id)
        finally:
            task.close()
    return Unplayed(*brought.spaces, config.environment.num_envs)


def _check_described(config: Config, environment: VectorEnvironment) -> None:
    """Hold the environment to what the config says of it."""
    try:
        check_spaces(config.environment, environment.single_observation_space, environment.single_action_space)
    except ConfigError:
        environment.close()
        raise


def build_workflow(
    config: Config,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    *,
    streams: RandomStreams | None = None,
    buffers: Mapping[str, Any] | None = None,
    collector: Collector | None = None,
    world: World = ALONE,
    action_repeat: int = 1,
) -> Workflow:
    """Build a workflow with its networks; without a collector it can act and be loaded, not train."""
    device = torch.device(config.experiment.device)
    workflow_class = _workflow_class(config)
    workflow_class.check_spaces(observation_space, action_space)
    parts = build_networks(
        config.network,
        workflow_class.roles(config, observation_space, action_space),
        observation_space,
        seed=config.experiment.seed,
        device=device,
        algorithm=config.algorithm.name,
    )
    workflow = workflow_class()
    workflow.initialize(
        Context(
            config=config,
            device=device,
            observation_space=observation_space,
            action_space=action_space,
            num_envs=config.environment.num_envs,
            streams=streams or RandomStreams(config.experiment.seed, device),
            components=Components(**parts),
            buffers=buffers or {},
            mode="eager" if collector is None else execution_mode(config),
            collector=collector,
            world=world,
            action_repeat=action_repeat,
        )
    )
    return workflow


def build_policy(config: Config, state: dict[str, Any], environment: VectorEnvironment) -> Policy:
    """Build the policy of a run from the policy part of a checkpoint; neither buffers nor optimisers are needed."""
    policy = build_workflow(config, environment.single_observation_space, environment.single_action_space).policy()
    policy.load_state_dict(state)
    return policy


def _workflow_class(config: Config) -> type[Workflow]:
    return algorithms.resolve(config.algorithm.name)


def _phases(config: Config, workflow: type[Workflow]) -> tuple[PhaseSpec, ...]:
    """The user's phases, or the algorithm's own."""
    wanted = config.training.phases or workflow.default_phases(config)
    phases = parse_phases(wanted, hooks=default_hooks(workflow, config), marks=hooks_of(workflow))
    problems = list(dict.fromkeys(phase_problems(phases, workflow, config.buffers)))
    if problems:
        raise ConfigError(*problems)
    return phases


def phases_of(config: Config) -> tuple[PhaseSpec, ...]:
    """Return the phases of a resolved config: the user's, or the algorithm's own."""
    return _phases(config, _workflow_class(config))


def cadences(config: Config) -> Cadences:
    """Return how often a resolved config logs, evaluates and saves."""
    return Cadences(
        log_steps=config.logging.every_steps or 1,
        log_updates=config.logging.every_updates,
        evaluate_steps=config.evaluation.every_steps or 0,
        evaluate_updates=config.evaluation.every_updates or 0,
        evaluate_warmup=config.evaluation.warmup_steps,
        save_steps=config.checkpoint.every_steps or 0,
        save_updates=config.checkpoint.every_updates or 0,
        save_minutes=config.checkpoint.every_minutes,
    )


def return_threshold(config: Config, environment: VectorEnvironment) -> float | None:
    """Return the mean return at which the task counts as solved, if anybody says."""
    candidates = (
        config.training.return_threshold,
        config.environment.spec.return_threshold,
        environment.return_threshold,
    )
    return next((value for value in candidates if value is not None), None)


def _callbacks(config: Config, environment: VectorEnvironment) -> list[Callback]:
    built = [_build_callback(part, index) for index, part in enumerate(config.training.callbacks)]
    for callback in built:
        callback.bind(config, environment)
    if config.training.early_stop == "off":
        return built
    threshold = return_threshold(config, environment)
    if threshold is None:
        raise ConfigError(
            f"training.early_stop={config.training.early_stop}: {config.environment.id} has no known return threshold; "
            "set training.return_threshold"
        )
    if config.training.early_stop == "eval":
        if config.evaluation.every_steps == 0:
            raise ConfigError("training.early_stop=eval: evaluations are off (evaluation.every_steps=0)")
        return [*built, EarlyStop("eval/return_mean", threshold)]
    return [*built, EarlyStop("collect/return_mean", threshold, min_episodes=100)]


def _build_callback(part: Any, index: int) -> Callback:
    where, cls = f"training.callbacks[{index}] ({part.type})", callbacks.resolve(part.type)
    if not isinstance(cls, type) or not issubclass(cls, Callback):
        raise UserError(f"{where}: is no callback: it must be derived from {Callback.__module__}.{Callback.__qualname__}")
    if not isinstance(part, Part):
        return cls(part)  # type: ignore[call-arg] # a class with a Config takes it
    try:
        return cls(**part.options)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: does not work with {part.options or 'no options'}: {error}") from error


def _build_buffer(options: Any, config: Config, name: str) -> Buffer:
    where, cls = f"buffers.{name}", buffers.resolve(options.type)
    if not isinstance(cls, type) or not issubclass(cls, Buffer):
        raise UserError(f"{where}.type={options.type}: is no buffer: it must be derived from {Buffer.__module__}.Buffer")
    if getattr(options, "device", "auto") != "auto":
        pick_device(options.device, where=f"{where}.device")
    return cls.build(options, config, name)


def _check_buffers(stores: Mapping[str, Buffer], phases: Sequence[PhaseSpec], workflow: type[Workflow], config: Config) -> None:
    """Refuse buffers that the workflow can't learn from, where it is going to."""
    for phase in phases:
        learns = any(not hook.collects and hook.name != "evaluate" for hook in phase.hooks)
        name = phase.buffer or next(iter(stores), None)
        if learns and name is not None and not isinstance(stores[name], workflow.learns_from):
            kinds = [known for known in buffers.builtin_names() if issubclass(buffers.resolve(known), workflow.learns_from)]
            raise UserError(
                f"buffers.{name}.type={config.buffers[name].type}: {config.algorithm.name} can't learn from it; "
                f"use {' or '.join(kinds) or 'its own'}"
            )

"""How a run is evaluated while it trains: in which ways of acting, how often, on how many copies, by which metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from etude.config.phases import PhaseSpec
from etude.config.registry import algorithms
from etude.config.schema import Config
from etude.environments.episode_limit import episode_limit
from etude.environments.families import family_of
from etude.environments.make import make_environment
from etude.errors import ConfigError, did_you_mean
from etude.orchestration.best_evaluations import Monitor
from etude.orchestration.evaluator import MAX_ENVS, Evaluator, metric_names

EVENTS_PER_RUN = 10
USUAL_EPISODE = 1000
"""How long episodes are taken to be at most where no time limit is known."""


def evaluation_modes(config: Config) -> tuple[Any, ...]:
    """Return the ways of acting to evaluate, the one that counts first."""
    default = algorithms.resolve(config.algorithm.name).evaluation_mode
    if config.evaluation.mode == "both":
        return (default, "sample" if default == "greedy" else "greedy")
    return (default if config.evaluation.mode == "auto" else config.evaluation.mode,)


def evaluation_metrics(config: Config) -> list[str]:
    """Return every metric that evaluations of this run may log, and that of the best so far."""
    known = metric_names(evaluation_modes(config))
    return [*known, Monitor(config.checkpoint.monitor).best_name] if config.checkpoint.monitor in known else known


def evaluation_cadence(config: Config, total: int) -> int:
    """Return the environment steps between evaluations: as asked, or as rarely as a short run can afford.

    All evaluations together act at most half as often as the run has environment steps, even if every episode is cut by its
    time limit. It follows from the settings alone, never from the clock, so that a run is the same anywhere.
    """
    evaluation, environment = config.evaluation, config.environment
    if evaluation.every_steps is not None:
        return evaluation.every_steps
    # A module of the user's own is imported when its environment is made, and not earlier.
    limit = environment.max_episode_steps if ":" in environment.id else episode_limit(environment)
    rounds = math.ceil(evaluation.episodes / _copies(config)) * (2 if evaluation.mode == "both" else 1)
    affordable = total // 2 // ((limit or USUAL_EPISODE) * rounds)
    return max(1, total // min(EVENTS_PER_RUN, max(1, affordable)))


def _copies(config: Config) -> int:
    # Emulators that take a process each are not for evaluating many episodes side by side.
    usual = 1 if family_of(config.environment.id).one_per_process else min(config.evaluation.episodes, MAX_ENVS)
    return config.evaluation.num_envs or usual


def build_evaluator(config: Config, device: torch.device, phases: Sequence[PhaseSpec], *, captured: bool) -> Evaluator | None:
    """Return what evaluates the policy while it learns; None where that is never asked for."""
    evaluation = config.evaluation
    is_asked_for = any(hook.name == "evaluate" for phase in phases for hook in phase.hooks)
    if evaluation.every_steps == 0 and not evaluation.every_updates and not is_asked_for:
        return None
    return Evaluator(
        lambda num_envs: make_environment(config.environment, num_envs=num_envs),
        episodes=evaluation.episodes,
        modes=evaluation_modes(config),
        seed=config.experiment.seed,
        device=device,
        num_envs=_copies(config),
        timeout_s=evaluation.timeout_s,
        captured=captured,
    )


def build_monitor(config: Config) -> Monitor:
    """Return what says which checkpoint is the best."""
    checkpoint, known = config.checkpoint, metric_names(evaluation_modes(config))
    if checkpoint.monitor not in known:
        hint = did_you_mean(checkpoint.monitor, known)
        raise ConfigError(f"checkpoint.monitor={checkpoint.monitor}: evaluations measure {', '.join(known)}{hint}")
    return Monitor(checkpoint.monitor, checkpoint.monitor_mode, checkpoint.keep_best)

"""Measuring a run's policy on request: stored settings, fresh episodes, and a record in the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

from etude.compute.random_streams import derive_seed, isolated_global_generators
from etude.environments.make import make_environment
from etude.errors import UserError
from etude.files.printable import printable
from etude.orchestration.evaluator import MAX_ENVS, EvaluationResult, evaluate_episodes
from etude.runs.evaluations import append_evaluations
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.training import assembly, session
from etude.using.stored_policy import OpenPolicy, StoredPolicy


def measure(
    stored: OpenPolicy,
    episodes: int,
    *,
    mode: Literal["auto", "greedy", "sample", "both"] = "auto",
    seed: int = 0,
    num_envs: int | None = None,
    timeout_s: float | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, EvaluationResult]:
    """Return what a policy earns in each way of acting, on the same episodes, and note it in its run's logs/evaluations.jsonl.

    Seeds are disjoint from those of training and of the evaluations within it.
    """
    config = stored.config
    seeds = derive_seed(config.experiment.seed, session.EVALUATION_SEEDS, seed)
    with isolated_global_generators(seeds):
        environment = make_environment(config.environment, num_envs=num_envs or min(episodes, MAX_ENVS))
    try:
        policy = stored.build(environment)
        results = {
            each: evaluate_episodes(
                policy,
                environment,
                episodes,
                mode=each,
                seed=seeds,
                device=config.experiment.device,
                timeout_s=timeout_s,
                on_progress=on_progress,
                captured=assembly.acts_captured(config),
            )
            for each in stored.modes(mode)
        }
    finally:
        environment.close()
    if isinstance(stored, StoredPolicy):
        _record(stored, results, seed, environment.num_envs)
    return results


def as_json(result: EvaluationResult) -> dict[str, Any]:
    """Return a result with every episode."""
    interval = result.confidence_interval()
    raw = {} if result.raw_returns is None else {"raw_returns": result.raw_returns.tolist()}
    return {
        **result.metrics(prefix=""),
        "return_ci95": None if interval is None else list(interval),
        "returns": result.returns.tolist(),
        **raw,
        "lengths": result.lengths.tolist(),
        "timed_out": result.timed_out,
    }


def kept_checkpoints(run: Run) -> list[Checkpoint]:
    """Return every checkpoint whose policy can be loaded, oldest first, one for each moment of the training."""
    usable = [saved for saved in run.checkpoints().list() if saved.kind != "damaged"]
    if not usable:
        raise UserError(f"run {run.id} has no checkpoint to evaluate")
    by_moment: dict[tuple[int, int], Checkpoint] = {}
    for saved in usable:
        moment = saved.counters["env_steps"], saved.counters["updates"]
        if moment not in by_moment or not by_moment[moment].is_best:
            by_moment[moment] = saved
    return list(by_moment.values())


def _record(stored: StoredPolicy, results: dict[str, EvaluationResult], seed: int, num_envs: int) -> None:
    about = {
        "checkpoint": stored.checkpoint.name,
        "env_steps": stored.checkpoint.counters["env_steps"],
        "updates": stored.checkpoint.counters["updates"],
        "seed": seed,
        "num_envs": num_envs,
        "device": stored.config.experiment.device,
    }
    try:
        append_evaluations(stored.run.logs, [{**about, "mode": mode, **as_json(result)} for mode, result in results.items()])
    except OSError as error:
        # Somebody else's run, or a read-only copy: the result still stands.
        print(printable(f"{stored.run.logs}: the result is not noted there: {error.strerror or error}"), file=sys.stderr)

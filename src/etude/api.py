"""Etude from Python: the command line's verbs as functions, with the same config and the same runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude import assembly, session
from etude.compute.random_streams import derive_seed
from etude.config.compose import compose
from etude.environments.make import make_environment as _make
from etude.environments.vector import VectorEnvironment
from etude.orchestration.evaluator import MAX_ENVS, EvaluationResult, evaluate_episodes
from etude.runs.run import Run
from etude.workflows.policy import Policy


def train(
    spec: str | None = None, *words: str, config: Path | str | None = None, runs: Path | str = "runs", quiet: bool = True
) -> Run:
    """Train `ENV:ALGO` with `key=value` words, as `etude train` does, and return the finished run."""
    composition = compose(spec, file=None if config is None else Path(config), words=words)
    return session.train(composition, root=Path(runs), quiet=quiet).run


def resume(run: Run | str, *words: str, runs: Path | str = "runs", quiet: bool = True) -> Run:
    """Continue a run exactly where it stopped; words change settings from here on."""
    found = run if isinstance(run, Run) else Run.resolve(run, Path(runs))
    return session.resume(found, words=words, quiet=quiet).run


def load_policy(
    run: Run | str, checkpoint: str = "last", *, runs: Path | str = "runs", num_envs: int | None = None
) -> tuple[Policy, VectorEnvironment]:
    """Return a run's policy and an environment like the one it was trained in."""
    found = run if isinstance(run, Run) else Run.resolve(run, Path(runs))
    policy, environment, _, _ = session.load_policy(found, checkpoint, num_envs=num_envs)
    return policy, environment


def evaluate(
    run: Run | str, episodes: int = 100, *, checkpoint: str = "last", seed: int = 0, runs: Path | str = "runs"
) -> EvaluationResult:
    """Measure a run's policy on fresh episodes, as `etude evaluate` does."""
    found = run if isinstance(run, Run) else Run.resolve(run, Path(runs))
    policy, environment, config, _ = session.load_policy(found, checkpoint, num_envs=min(episodes, MAX_ENVS))
    (mode, *_) = assembly.evaluation_modes(config)
    purpose = derive_seed(config.experiment.seed, session.EVALUATION_SEEDS, seed)
    return evaluate_episodes(policy, environment, episodes, mode=mode, seed=purpose, device=config.experiment.device)


def make_environment(name: str, num_envs: int = 1, *, render_mode: str | None = None, **kwargs: Any) -> VectorEnvironment:
    """Return `num_envs` copies of an environment, in the form workflows see it."""
    from etude.config.schema import EnvironmentConfig

    return _make(EnvironmentConfig(id=name, num_envs=num_envs, kwargs=kwargs), render_mode=render_mode)

"""Etude: a reinforcement-learning laboratory on PyTorch.

    import etude

    run = etude.start("CartPole-v1:ppo", "experiment.seed=3")
    for row in run:
        print(row["env_steps"], row.get("eval/return_mean"))
    policy, environment = run.policy()

Everything heavy is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from etude.api import (
        Experiment,
        Run,
        evaluate,
        load_component,
        load_policy,
        make_environment,
        make_sampler,
        open_run,
        play,
        resume,
        save_component,
        start,
        train,
    )
    from etude.runs.index import find_runs

__all__ = [
    "Experiment",
    "Run",
    "evaluate",
    "find_runs",
    "load_component",
    "load_policy",
    "make_environment",
    "make_sampler",
    "open_run",
    "play",
    "resume",
    "save_component",
    "start",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'etude' has no attribute '{name}'")
    if name == "find_runs":  # not in api, which brings torch
        from etude.runs.index import find_runs

        return find_runs
    from etude import api

    return getattr(api, name)

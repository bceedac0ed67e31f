"""Etude: a reinforcement-learning laboratory on PyTorch.

    import etude

    run = etude.train("CartPole-v1:ppo", "experiment.seed=3")
    policy, environment = etude.load_policy(run)

Everything heavy is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from etude.api import evaluate, load_policy, make_environment, resume, train
    from etude.runs.run import Run

__all__ = ["Run", "evaluate", "load_policy", "make_environment", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'etude' has no attribute '{name}'")
    if name == "Run":
        from etude.runs.run import Run

        return Run
    from etude import api

    return getattr(api, name)

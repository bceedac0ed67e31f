"""Tiny runs of TD-MPC2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.orchestration.orchestrator import Orchestrator
from tests.workflows.tiny_replay_runs import start

TINY = (
    *(f"network.{role}.hidden_dims=[16]" for role in ("encoder", "dynamics", "reward", "critic", "actor")),
    *(
        "algorithm.size=small",
        "algorithm.latent_dim=16",
        "algorithm.batch_size=8",
        "algorithm.learning_starts=40",
        "algorithm.pretrain=6",
    ),
    *("algorithm.samples=16", "algorithm.policy_samples=4", "algorithm.elites=4", "algorithm.iterations=2"),
    *("algorithm.updates_per_decision=0.5", "environment.num_envs=2", "training.total_steps=100"),
    *("evaluation.every_steps=0", "evaluation.every_updates=0"),
)
ENDINGS = "etude.testing.probes:probe/Endings-v0:tdmpc"
BOX_ACTIONS = "environment.kwargs={observations: box, actions: box}"


def build(spec: str = "Pendulum-v1:tdmpc", *words: str, tiny: Sequence[str] = TINY) -> Orchestrator:
    orchestrator = start(spec, (*tiny, *words))
    orchestrator.stopwatch.start(orchestrator.scheduler.reading())
    return orchestrator


def trained(orchestrator: Orchestrator, updates: int = 6) -> Any:
    """Run until so many updates were taken, and return the workflow."""
    while orchestrator.counters.updates < updates:
        orchestrator._run_cycle()
    return orchestrator.workflow


def window_of(orchestrator: Orchestrator, n: int = 8) -> dict[str, Any]:
    return orchestrator.buffers["replay"].sample(n, orchestrator.streams["buffer"])

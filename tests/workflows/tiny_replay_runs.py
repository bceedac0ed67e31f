"""Tiny runs of algorithms with a replay buffer: ready to step, ready to take a loss of, compiled beside eager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly


def start(spec: str, words: Sequence[str]) -> Orchestrator:
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=words).config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def batch_of(orchestrator: Orchestrator) -> tuple[Any, dict[str, Any]]:
    """Fill the buffer and return the workflow and a batch with the noise that an update on it needs."""
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    workflow: Any = orchestrator.workflow
    batch = orchestrator.buffers["replay"].sample(16, orchestrator.streams["buffer"])
    noise = {name: column[0] for name, column in workflow.noise(1, orchestrator.streams["noise"]).items()}
    return workflow, {**batch, **noise}


def assert_compiled_equals_eager(spec: str, words: Sequence[str], roles: Sequence[str], updates: int = 3) -> None:
    pair = [start(spec, (*words, f"experiment.compile={mode}")) for mode in ("off", "on")]
    for orchestrator in pair:
        while orchestrator.counters.updates < updates:
            orchestrator._run_cycle()
    eager, fast = (orchestrator.workflow.state_dict() for orchestrator in pair)
    assert pair[1].workflow._step.mode == "compiled"  # type: ignore[attr-defined]
    for role in roles:
        for name, value in eager[role].items():
            torch.testing.assert_close(value, fast[role][name], rtol=1e-4, atol=1e-5)

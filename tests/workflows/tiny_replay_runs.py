"""Tiny runs of algorithms with a replay buffer: ready to step, ready to take a loss of, compiled beside eager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly


def start(spec: str, words: Sequence[str]) -> Orchestrator:
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=words).config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def batch_of(orchestrator: Orchestrator) -> tuple[Any, dict[str, Any]]:
    """Fill the buffer and return the workflow and a batch from it."""
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    workflow: Any = orchestrator.workflow
    return workflow, orchestrator.buffers["replay"].sample(16, orchestrator.streams["buffer"])


def normal(*shape: int) -> Tensor:
    """Noise that is always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def assert_compiled_equals_eager(spec: str, words: Sequence[str], roles: Sequence[str], updates: int = 3) -> None:
    pair = [start(spec, (*words, f"experiment.compile={mode}")) for mode in ("off", "on")]
    for orchestrator in pair:
        while orchestrator.counters.updates < updates:
            orchestrator._run_cycle()
    eager, fast = (orchestrator.workflow.state_dict() for orchestrator in pair)
    assert pair[1].workflow._executor.mode == "compiled"
    for role in roles:
        for name, value in eager[role].items():
            torch.testing.assert_close(value, fast[role][name], rtol=1e-4, atol=1e-5)

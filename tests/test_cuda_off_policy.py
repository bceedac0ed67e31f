"""Updates recorded as a CUDA graph are the eager ones; skipped where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude import assembly
from etude.config.compose import compose

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TINY = (
    *("algorithm.batch_size=16", "algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=200"),
    *("evaluation.every_steps=0", "algorithm.train_every=2", "algorithm.gradient_steps=4", "experiment.device=cuda"),
)


@pytest.mark.parametrize("algorithm", ["sac", "sql", "td3", "tqc"])
def test_a_captured_update_equals_an_eager_one(algorithm: str) -> None:
    pair = []
    for mode in ("off", "on"):
        words = (*TINY, f"experiment.compile={mode}")
        orchestrator = assembly.build(assembly.resolve(compose(f"Pendulum-v1:{algorithm}", words=words).config))
        assert orchestrator.collector is not None
        orchestrator.collector.start(orchestrator.workflow.initial_state)
        while orchestrator.counters.updates < 12:
            orchestrator._run_cycle()
        pair.append(orchestrator)
    captured: Any = pair[1].workflow
    assert captured._step.mode == "graph"
    eager, fast = (orchestrator.workflow.state_dict() for orchestrator in pair)
    for role in ("actor", "sampler", "critic", "target_actor", "target_critic", "temperature"):
        for name, value in eager.get(role, {}).items():
            torch.testing.assert_close(value, fast[role][name], rtol=1e-4, atol=1e-5)

"""No loss of an off-policy algorithm reads a number back from the device: each can be captured and replayed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.learning.update import as_out
from etude.training import assembly

TINY = (
    *("algorithm.batch_size=8", "algorithm.learning_starts=16", "environment.num_envs=2", "evaluation.every_steps=0"),
    "experiment.compile=off",  # what is looked at is the loss itself
)


@pytest.mark.parametrize(
    "spec", ["Pendulum-v1:sac", "Pendulum-v1:sql", "Pendulum-v1:td3", "Pendulum-v1:tqc", "CartPole-v1:sac"]
)
def test_a_loss_needs_no_numbers(spec: str) -> None:
    """Tensors on the meta device have shapes and no values: reading one is an error."""
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=TINY).config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    workflow: Any = orchestrator.workflow
    batch = orchestrator.buffers["replay"].sample(8, orchestrator.streams["buffer"])
    batch["weight"] = torch.ones(8)
    executor, asked = workflow._executor, Noise(orchestrator.streams["noise"])
    executor.once(batch, (True,) * 3, asked)
    noise = Noise(drawn={name: torch.empty(request.shape, device="meta") for name, request in asked.requests.items()})
    rows = {name: column.to("meta") for name, column in batch.items()}
    executor.modules.to("meta")
    if "_fixed" in vars(workflow):
        workflow._fixed = {name: value.to("meta") for name, value in workflow._fixed.items()}
    for position, stage in enumerate(executor.update.stages):
        out = as_out(stage.loss(rows, **executor.given(position, {}, stage.state, noise)))
        out.loss.backward()
        assert all(value.device.type == "meta" for value in (out.loss, *out.metrics.values(), *out.per_row.values()))
        with pytest.raises(RuntimeError, match="meta"):
            out.loss.item()

"""No loss of an off-policy algorithm reads a number back from the device: each can be captured and replayed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from etude.config.compose import compose
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
    noise = {name: column[0] for name, column in workflow.noise(1, orchestrator.streams["noise"]).items()}
    rows = {name: column.to("meta") for name, column in {**batch, **noise}.items()}
    for stage in workflow._step.stages:
        objective = deepcopy(stage.objective).to("meta")
        loss, metrics = objective(rows)
        loss.backward()
        assert all(value.device.type == "meta" for value in (loss, *metrics.values()))
        with pytest.raises(RuntimeError, match="meta"):
            loss.item()

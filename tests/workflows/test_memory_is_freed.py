"""What a workflow held is free as soon as nobody holds the workflow: a replay may be most of a machine's memory."""

from __future__ import annotations

import gc
import weakref

import pytest

from etude.config.compose import compose
from etude.training import assembly

SPECS = ("CartPole-v1:ppo", "CartPole-v1:a2c", "CartPole-v1:reinforce", "CartPole-v1:dqn", "Pendulum-v1:sac", "CartPole-v1:sac",
         "Pendulum-v1:td3", "Pendulum-v1:tqc", "Pendulum-v1:sql")  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_it_goes_without_the_garbage_collector(spec: str) -> None:
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=("experiment.device=cpu",)).config))
    orchestrator.begin()
    held = [weakref.ref(buffer) for buffer in orchestrator.buffers.values()]
    gc.disable()
    try:
        del orchestrator
        assert [buffer() for buffer in held] == [None]
    finally:
        gc.enable()

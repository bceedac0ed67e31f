"""What is recorded as CUDA graphs, acting, drawing batches and updates, is the eager run; skipped where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from etude.buffers import frame_file
from etude.config.compose import compose
from etude.learning.sources import Replayed
from etude.training import assembly

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TINY = (
    *("algorithm.batch_size=16", "algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=400"),
    *("evaluation.every_steps=0", "algorithm.train_every=2", "algorithm.gradient_steps=4", "experiment.device=cuda"),
)


SPECS = ["Pendulum-v1:sac", "Pendulum-v1:sql", "Pendulum-v1:td3", "Pendulum-v1:tqc", "Pendulum-v1:flash_sac", "CartPole-v1:dqn"]
MORE = {
    "n-step": ["algorithm.n_step=3"],
    "on the host": ["buffers.replay.device=cpu"],
    "on disk": ["buffers.replay.storage=disk"],
    "new first": ["buffers.replay.online=true"],
    "prioritized": ["buffers.replay.type=prioritized"],
    "one by one": ["algorithm.gradient_steps=1"],
}


def _run(spec: str, mode: str, *words: str, updates: int = 12) -> Any:
    config = compose(spec, words=(*TINY, f"experiment.compile={mode}", *words)).config
    orchestrator = assembly.build(assembly.resolve(config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    while orchestrator.counters.updates < updates:
        orchestrator._run_cycle()
    return orchestrator


def _draws_inside(orchestrator: Any) -> bool:
    """Whether drawing and gathering batches is part of what is captured."""
    workflow = orchestrator.workflow
    source = Replayed(orchestrator.buffers["replay"], workflow.columns, 16, orchestrator.streams["buffer"])
    return workflow._executor.draws_inside(source)


def _assert_same(one: Any, other: Any) -> None:
    """The same experience, weights and moments but for roundings, and streams that stand at the same place."""
    assert one.counters == other.counters
    for role, part in one.workflow.state_dict().items():
        theirs = other.workflow.state_dict()[role]
        for name, value in part.items() if isinstance(part, dict) else ():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-5, msg=f"{role}.{name}")
    for name, column in one.buffers["replay"].columns.items():
        torch.testing.assert_close(column, other.buffers["replay"].columns[name], rtol=1e-4, atol=1e-4, msg=name)
    for name, state in one.streams.state_dict()["streams"].items():
        assert torch.equal(state, other.streams.state_dict()["streams"][name]), name


@pytest.mark.parametrize("spec", SPECS)
def test_a_captured_run_is_the_eager_run(spec: str) -> None:
    eager, captured = (_run(spec, mode, updates=40) for mode in ("off", "capture"))
    assert captured.workflow._executor.mode == "captured"
    assert captured.workflow.explorer().captured
    assert _draws_inside(captured)
    _assert_same(eager, captured)


@pytest.mark.parametrize("kind", MORE)
def test_other_ways_of_replaying_are_the_eager_ones_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_file, "SMALLEST_FRAME", 1)
    eager, captured = (_run("Pendulum-v1:sac", mode, *MORE[kind]) for mode in ("off", "capture"))
    assert _draws_inside(captured) == (kind in ("one by one", "n-step"))
    _assert_same(eager, captured)


@pytest.mark.parametrize("spec", SPECS)
def test_one_update_that_was_compiled_before_it_was_recorded_is_an_eager_one(spec: str) -> None:
    """Further ones drift apart: Adam divides roundings of gradients near 0 by their own size."""
    one = ("algorithm.gradient_steps=1", "algorithm.train_every=1")
    eager, compiled = (_run(spec, mode, *one, updates=1) for mode in ("off", "on"))
    assert compiled.workflow._executor.mode == "compiled and captured"
    _assert_same(eager, compiled)


def test_a_captured_run_goes_on_from_a_saved_state_as_it_would_have() -> None:
    whole, saved = _run("Pendulum-v1:sac", "capture", updates=40), _run("Pendulum-v1:sac", "capture", updates=20)
    later = _run("Pendulum-v1:sac", "capture", updates=4)  # its graphs are recorded already, with other weights and streams
    later.load_state_dict(pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, saved.state_dict()))
    while later.counters.updates < 40:
        later._run_cycle()
    _assert_same(whole, later)

"""PPO with memory as CUDA graphs, on a stand-in for them: captured, it acts, values and learns as it does eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from tests.capture_double import Again, pretend_capture

SMALL = (
    *("environment.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "algorithm.epochs=2"),
    *("training.total_steps=2000", "evaluation.every_steps=0", "experiment.device=cpu", "experiment.compile=off"),
    *("environment.normalize_observations=rolling", "environment.max_episode_steps=11"),
)
NETWORKS = {
    "gru": "{type: gru, hidden_dims: [8], memory_size: 8, memory_layers: 2}",
    "lstm": "{type: lstm, hidden_dims: [8], memory_size: 8}",
    "transformer": "{type: transformer, window: 6, width: 8, heads: 2}",
}
CYCLES = 7
"""Three go by while libraries would warm up."""


def built(network: str, monkeypatch: pytest.MonkeyPatch, *, captured: bool) -> tuple[Orchestrator, list[Again]]:
    words = (*SMALL, f"network.actor={NETWORKS[network]}", f"network.critic={NETWORKS[network]}")
    config = assembly.resolve(compose("CartPoleNoVelocity-v0:ppo", words=words).config)
    runs: list[Any] = []
    graphs = pretend_capture(monkeypatch, lambda: runs[0].workflow._executor.touched()) if captured else []
    monkeypatch.setattr(assembly, "execution_mode", lambda config: "captured" if captured else "eager")
    runs.append(assembly.build(config))
    assert runs[0].workflow._executor.mode == ("captured" if captured else "eager")
    assert runs[0].collector is not None
    runs[0].collector.start(runs[0].workflow.initial_state)
    return runs[0], graphs


def cycled(network: str, monkeypatch: pytest.MonkeyPatch, *, captured: bool, cycles: int = CYCLES) -> Orchestrator:
    run, graphs = built(network, monkeypatch, captured=captured)
    for _ in range(cycles):
        run._run_cycle()
    assert len(graphs) == (3 if captured and cycles >= 4 else len(graphs)), "acting, values and updates"
    return run


def assert_close(one: Orchestrator, other: Orchestrator) -> None:
    """The same weights, states and statistics but for roundings, and streams that stand at the same place."""
    assert one.counters == other.counters
    parts = [{"workflow": run.workflow.state_dict(), "collector": run.collector.state_dict()} for run in (one, other)]  # type: ignore[union-attr]
    for mine, theirs in zip(*(pytree.tree_leaves(part) for part in parts), strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    for name, state in one.streams.state_dict()["streams"].items():
        assert torch.equal(state, other.streams.state_dict()["streams"][name]), name


@pytest.mark.parametrize("network", NETWORKS)
def test_a_captured_run_is_the_eager_run(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = cycled(network, monkeypatch, captured=False)
    assert_close(cycled(network, monkeypatch, captured=True), eager)


def test_a_captured_run_goes_on_from_a_saved_state_as_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cycled("gru", monkeypatch, captured=True)
    saved = cycled("gru", monkeypatch, captured=True, cycles=5).state_dict()
    saved = pytree.tree_map_only(torch.Tensor, torch.clone, saved)
    later = cycled("gru", monkeypatch, captured=True, cycles=6)  # its graphs are there already, with other weights and memories
    later.load_state_dict(saved)
    for _ in range(CYCLES - 5):
        later._run_cycle()
    assert_close(later, whole)

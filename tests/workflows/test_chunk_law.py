"""hook(a) then hook(b) is hook(a + b): buffers, environments, streams and metrics, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from etude.components.networks.recurrent import GRUConfig, LSTMConfig
from etude.components.networks.transformer import TransformerConfig
from etude.config.schema import Config
from etude.orchestration.orchestrator import Orchestrator
from etude.workflows.base import HookResult, Phase
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import copied, ppo_config, random_config, start, state_of

PHASE = Phase("train", env_steps=64, total_steps=1_000)
PPO_RUNS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "Pendulum-v1": {"env": {"normalize_observations": "rolling", "normalize_rewards": True}},
    "Blackjack-v1": {"target_kl": 0.001},
}
MEMORIES: dict[str, Any] = {
    "gru": GRUConfig(hidden_dims=(8,), memory_size=8, memory_layers=2),
    "lstm": LSTMConfig(hidden_dims=(8,), memory_size=8),
    "transformer": TransformerConfig(window=5, width=8, heads=2),
}
CONFIGS: dict[str, Config] = {
    **{
        f"ppo {name}": replace(ppo_config("CartPole-v1"), network={"actor": network, "critic": network})
        for name, network in MEMORIES.items()
    },
    **{f"ppo {name}": ppo_config(name, **options) for name, options in PPO_RUNS.items()},
    **{f"random {name}": random_config(name) for name in ("CartPole-v1", "Pendulum-v1", "Taxi-v4")},
}


def collected(config: Config, *chunks: int) -> tuple[Orchestrator, HookResult]:
    run = start(config)
    results = [run.workflow.collect(PHASE, count) for count in chunks]
    return run, HookResult(sum(r.decisions for r in results), sum(r.env_steps for r in results))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("chunks", [(5, 11), (1,) * 16, (16, 3), (0, 16)], ids=str)
def test_collecting_in_pieces_is_collecting_at_once(name: str, chunks: tuple[int, ...]) -> None:
    config = CONFIGS[name]
    whole, done = collected(config, 16)
    after_whole = copied(state_of(whole))  # before the other run moves the global generators on
    pieces, done_in_pieces = collected(config, *chunks)
    assert_same_state(state_of(pieces), after_whole)
    assert done_in_pieces == done  # a full buffer takes no more
    assert done.decisions == 16 * 4
    assert whole.collector is not None
    assert pieces.collector is not None
    assert pieces.collector.episodes.read() == whole.collector.episodes.read()


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("ppo")])
def test_what_follows_does_not_know_how_it_was_collected(name: str) -> None:
    outcomes = []
    for chunks in ((16,), (7, 9)):
        run, _ = collected(CONFIGS[name], *chunks)
        first = run.workflow.update(PHASE, 1)
        second = run.workflow.update(PHASE, 1)  # nothing left to learn from: no work, no trace
        assert first.updates == 8
        assert second.is_empty
        for count in chunks:
            run.workflow.collect(PHASE, count)
        outcomes.append((copied(state_of(run)), run.workflow.metrics.drain()))
    assert_same_state(*[state for state, _ in outcomes])
    assert outcomes[0][1] == outcomes[1][1]


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("ppo")])
def test_updating_twice_at_once_is_updating_twice(name: str) -> None:
    outcomes = []
    for counts in ((1, 1), (2,)):
        run, _ = collected(CONFIGS[name], 16)
        for count in counts:
            run.workflow.update(PHASE, count)
        outcomes.append(copied(state_of(run)))
    assert_same_state(*outcomes)

"""PPO with memory on a GPU: captured with its state it is the eager run; skipped where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from etude.acting.actor import Actor
from etude.config.compose import compose
from etude.orchestration.evaluator import evaluate_episodes
from etude.training import assembly
from tests.runs_compared import assert_same_state, resume, state, stopped_after, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NETWORKS = {
    "gru": "{type: gru, hidden_dims: [16], memory_size: 16}",
    "gru of two layers": "{type: gru, hidden_dims: [], memory_size: 16, memory_layers: 2}",
    "lstm": "{type: lstm, hidden_dims: [16], memory_size: 16}",
    "transformer": "{type: transformer, window: 6, width: 16, heads: 2}",
}
SMALL = (
    *("environment.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "algorithm.epochs=2"),
    *("training.total_steps=2000", "environment.max_episode_steps=11", "experiment.device=cuda"),
)


@pytest.fixture(autouse=True)
def _in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's recurrent layers, which eager updates call, round to TF32 unless told otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def _words(network: str, mode: str) -> tuple[str, ...]:
    networks = (f"network.{role}={NETWORKS[network]}" for role in ("actor", "critic"))
    return (*SMALL, *networks, f"experiment.compile={mode}")


def _run(network: str, mode: str, *, cycles: int = 8) -> Any:
    """Rollouts and updates in turn; the first ones go by while libraries warm up."""
    words = (*_words(network, mode), "evaluation.every_steps=0", "environment.normalize_observations=rolling")
    run = assembly.build(assembly.resolve(compose("CartPoleNoVelocity-v0:ppo", words=words).config))
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    for _ in range(cycles):
        run._run_cycle()
    return run


def _assert_close(one: Any, other: Any, tolerance: float = 2e-3) -> None:
    """The same weights, moments, memories and statistics but for roundings, and streams that stand at the same place."""
    assert one.counters == other.counters
    parts = [pytree.tree_leaves([run.workflow.state_dict(), run.collector.state_dict()]) for run in (one, other)]
    for mine, theirs in zip(*parts, strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
    for name, stream in one.streams.state_dict()["streams"].items():
        assert torch.equal(stream, other.streams.state_dict()["streams"][name]), name


@pytest.mark.parametrize("network", NETWORKS)
def test_a_captured_run_is_the_eager_run(network: str) -> None:
    eager, captured = (_run(network, mode) for mode in ("off", "capture"))
    assert captured.workflow._executor.mode == "captured"
    assert captured.workflow.explorer().captured
    assert not eager.workflow.explorer().captured
    _assert_close(eager, captured)


def test_compiling_falls_back_to_capturing() -> None:
    run = _run("gru", "on", cycles=2)
    assert run.workflow._executor.mode == "captured"


@pytest.mark.parametrize("network", NETWORKS)
def test_captured_acting_carries_its_state(network: str) -> None:
    policy, said = _run(network, "capture", cycles=1).workflow.policy(), []
    for captured in (False, True):
        actor = Actor(policy, "sample", torch.Generator("cuda").manual_seed(1), captured=captured)
        draw, carried = torch.Generator().manual_seed(2), actor.initial_state(6)
        with torch.no_grad():
            for _ in range(20):
                observation, is_first = torch.randn(6, 2, generator=draw), torch.rand(6, generator=draw) < 0.2
                result = actor(observation.cuda(), carried, is_first.cuda())
                carried = result.state
                said.append([result.extras["log_prob"].clone(), *map(torch.clone, pytree.tree_leaves(carried))])
        assert actor.captured == captured
    for eager, captured in zip(said[:20], said[20:], strict=True):
        torch.testing.assert_close(eager, captured, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["sample", "greedy"])
def test_a_captured_evaluation_is_the_eager_one(mode: Any) -> None:
    from etude.environments.make import make_environment

    run, results = _run("gru", "capture", cycles=2), []
    for captured in (False, True):
        environment = make_environment(run.workflow.context.config.environment, num_envs=3)
        options = {"mode": mode, "seed": 4, "device": "cuda", "captured": captured}
        results.append(evaluate_episodes(run.workflow.policy(), environment, 9, **options))
        environment.close()
    assert results[0].lengths.tolist() == results[1].lengths.tolist()


def test_a_captured_run_goes_on_from_a_saved_state_as_it_would_have() -> None:
    whole = _run("gru", "capture", cycles=10)
    saved = pytree.tree_map_only(Tensor, torch.clone, _run("gru", "capture", cycles=6).state_dict())
    later = _run("gru", "capture", cycles=8)  # its graphs are there already, with other weights and memories
    later.load_state_dict(saved)
    for _ in range(4):
        later._run_cycle()
    _assert_close(whole, later)


def test_a_stopped_run_equals_one_that_was_not(tmp_path: Path) -> None:
    words = (*_words("gru", "capture"), "experiment.deterministic=true", "evaluation.episodes=2")
    whole = train("CartPoleNoVelocity-v0:ppo", tmp_path / "whole", *words)
    with stopped_after(9):
        run = train("CartPoleNoVelocity-v0:ppo", tmp_path / "cut", *words)
    assert resume(run).status == "finished"
    assert_same_state(state(run), state(whole))

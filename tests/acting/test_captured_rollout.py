"""Rollouts captured whole, on a stand-in for CUDA graphs: a run whose cycle is graphs from end to end is the eager run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from etude.acting.episodes import EpisodeStatistics
from etude.components.networks.mlp import HostMLP
from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from tests.capture_double import Again, pretend_capture

SMALL = (
    *("environment.num_envs=6", "environment.backend=torch", "environment.max_episode_steps=13", "algorithm.rollout_steps=16"),
    *("algorithm.batch_size=24", "algorithm.epochs=4", "training.total_steps=4000", "evaluation.every_steps=0"),
    *("experiment.device=cpu", "experiment.compile=off", "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]"),
    *("environment.normalize_observations=rolling", "environment.normalize_rewards=true"),
)
CYCLES = 6


def built(spec: str, monkeypatch: pytest.MonkeyPatch, *, captured: bool) -> tuple[Orchestrator, list[Again]]:
    runs: list[Any] = []

    def touched() -> list[torch.Tensor]:
        run = runs[0]
        workflow, collector = run.workflow, run.collector
        state = [run.buffers["rollout"].columns, collector.episodes.state_dict(), workflow.normalizer.state_dict()]
        own = collector._whole and collector._whole._own
        more = pytree.tree_leaves([*state, workflow.reward_normalizer.state_dict(), own and (own.observation, own.is_first)])
        tensors = [leaf for leaf in more if isinstance(leaf, torch.Tensor)]
        return [*workflow._executor.touched(), *collector.environment.touched, *tensors]

    graphs = pretend_capture(monkeypatch, touched) if captured else []
    monkeypatch.setattr(HostMLP, "of", classmethod(lambda cls, *given: None))  # on a GPU nobody acts in NumPy
    monkeypatch.setattr(assembly, "execution_mode", lambda config: "captured" if captured else "eager")
    runs.append(assembly.build(assembly.resolve(compose(spec, words=SMALL).config)))
    collector = runs[0].collector
    collector.start(runs[0].workflow.initial_state)
    return runs[0], graphs


def cycled(spec: str, monkeypatch: pytest.MonkeyPatch, *, captured: bool, cycles: int = CYCLES) -> Orchestrator:
    run, graphs = built(spec, monkeypatch, captured=captured)
    for _ in range(cycles):
        run._run_cycle()
    if captured and cycles >= 4:
        # Acting by itself in the first rollout, then whole ones; preparation after its warm-up; 16 minibatches in one launch.
        assert len(graphs) == 4
        before = [again.replays for again in graphs]
        run._run_cycle()
        assert [again.replays - count for again, count in zip(graphs, before, strict=True)] == [0, 1, 1, 1]
    elif not captured and cycles >= 4:
        run._run_cycle()
    return run


def assert_close(one: Orchestrator, other: Orchestrator) -> None:
    """The same weights, statistics and places in random streams, but for roundings."""
    assert one.counters == other.counters
    parts = [{"workflow": run.workflow.state_dict(), "collector": run.collector.state_dict()} for run in (one, other)]  # type: ignore[union-attr]
    for (path, mine), (_, theirs) in zip(*(pytree.tree_flatten_with_path(part)[0] for part in parts), strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=lambda said, path=path: f"{path}: {said}")
    for name, state in one.streams.state_dict()["streams"].items():
        assert torch.equal(state, other.streams.state_dict()["streams"][name]), name


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Pendulum-v1:ppo"])
def test_a_run_whose_whole_cycle_is_captured_is_the_eager_run(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = cycled(spec, monkeypatch, captured=False)
    assert_close(cycled(spec, monkeypatch, captured=True), eager)


def test_a_captured_run_goes_on_from_a_saved_state(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = "CartPole-v1:ppo"
    whole = cycled(spec, monkeypatch, captured=True)
    saved = cycled(spec, monkeypatch, captured=True, cycles=3).state_dict()
    saved = pytree.tree_map_only(torch.Tensor, torch.clone, saved)
    later = cycled(spec, monkeypatch, captured=True, cycles=5)  # its graphs are there already, and stand elsewhere
    later.load_state_dict(saved)
    for _ in range(whole.counters.cycles - 3):
        later._run_cycle()
    assert_close(later, whole)


def test_statistics_of_many_steps_at_once_are_those_step_by_step() -> None:
    generator = torch.Generator().manual_seed(0)
    slow, fast = (EpisodeStatistics(7, torch.device("cpu")) for _ in range(2))
    slow._on_host = False
    for _ in range(4):
        rewards = torch.randn(50, 7, generator=generator)
        ended = torch.rand(50, 7, generator=generator) < 0.1
        for reward, ends in zip(rewards, ended, strict=True):
            slow.add(reward, ends)
        fast.add_steps(rewards, ended)
        for name, value in slow.state_dict().items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(fast.state_dict()[name], value, rtol=1e-9, atol=1e-9, msg=name)
    assert slow.finished > 100


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Pendulum-v1:ppo", "BrickWall-v0:ppo", "FruitFall-v0:ppo"])
def test_a_run_whose_steps_are_compiled_is_the_eager_run(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = cycled(spec, monkeypatch, captured=False)
    compiled, _ = built(spec, monkeypatch, captured=True)
    actor = compiled.workflow.explorer()  # type: ignore[attr-defined] # of every workflow that has a policy
    actor.compiles = True
    for _ in range(eager.counters.cycles):
        compiled._run_cycle()
    assert compiled.collector is not None
    assert compiled.collector._whole is not None
    assert compiled.collector._whole._compiled["explore"] is not None
    assert_close(compiled, eager)

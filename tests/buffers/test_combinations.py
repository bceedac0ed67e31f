"""Every combination of what a replay can do trains, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import gymnasium
import pytest

from etude.config.compose import compose
from etude.errors import UserError
from etude.training import assembly
from tests.buffers.test_hindsight import Reach

OPTIONS = {
    "priority": "buffers.replay.priority={alpha: 0.6}",
    "n_step": "buffers.replay.n_step=3",
    "hindsight": "buffers.replay.hindsight={ratio: 2}",
    "frame_stack": "buffers.replay.frame_stack=2",
    "sequence": "buffers.replay.sequence=4",
}
COMBINATIONS = [tuple(name for name, on in zip(OPTIONS, which, strict=True) if on) for which in product((0, 1), repeat=5)]
SMALL = (
    *("algorithm.learning_starts=12", "algorithm.batch_size=6", "buffers.replay.capacity=40", "environment.num_envs=2"),
    *("algorithm.train_every=1", "algorithm.gradient_steps=2", "evaluation.every_steps=0", "experiment.device=cpu"),
    *("experiment.compile=off", "buffers.replay.type=replay"),
)
REFUSED = {
    ("sequence",): "learns from single transitions; set it to null",
    ("hindsight", "frame_stack"): "tasks with goals have observations of several parts",
}


@pytest.fixture
def goals_on_a_line() -> Iterator[None]:
    gymnasium.register("Reach-v0", entry_point=lambda **_: Reach(), max_episode_steps=5)
    yield
    del gymnasium.registry["Reach-v0"]


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda names: "-".join(names) or "plain")
def test_it_trains_or_is_refused_with_the_reason(combination: tuple[str, ...], algorithm: str, goals_on_a_line: None) -> None:
    tasks = {"dqn": ("Reach-v0", "CartPole-v1"), "sac": ("PointReach-v0", "Pendulum-v1")}[algorithm]
    words = [*SMALL, *(OPTIONS[name] for name in combination)]
    words += ["network.q.hidden_dims=[8]"] if algorithm == "dqn" else ["network.actor.hidden_dims=[8]"]
    if "frame_stack" in combination and "hindsight" not in combination:
        words.append("environment.wrappers=[{id: stack, count: 2}]")
    reasons = [reason for names, reason in REFUSED.items() if set(names) <= set(combination)]
    if reasons:
        with pytest.raises(UserError) as refused:
            _two_updates(f"{tasks['hindsight' not in combination]}:{algorithm}", words)
        assert any(reason in str(refused.value) for reason in reasons)
        return
    orchestrator = _two_updates(f"{tasks['hindsight' not in combination]}:{algorithm}", words)
    buffer = orchestrator.buffers["replay"]
    batch = buffer.sample(6, orchestrator.streams["buffer"])
    assert ("weight" in batch) == ("priority" in combination)
    assert ("is_relabelled" in batch) == ("hindsight" in combination)
    if "n_step" in combination:
        assert buffer.steps.count == 3
    orchestrator.close()


def _two_updates(spec: str, words: list[str]) -> Any:
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=words).config))
    orchestrator.begin()
    while orchestrator.counters.updates < 2:
        orchestrator._run_cycle()
    return orchestrator


@pytest.mark.parametrize("algorithm", ["td3", "tqc", "sql"])
def test_critics_of_continuous_actions_learn_from_all_of_it_at_once(algorithm: str) -> None:
    words = [*SMALL, OPTIONS["priority"], OPTIONS["n_step"], OPTIONS["hindsight"]]
    orchestrator = _two_updates(f"PointReach-v0:{algorithm}", words)
    assert set(orchestrator.buffers["replay"].sample(4, orchestrator.streams["buffer"])) >= {"weight", "is_relabelled"}
    orchestrator.close()

"""Collecting in NumPy from end to end is collecting with tensors, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Generator, Tensor

from etude.acting import rollout
from etude.orchestration.orchestrator import Orchestrator
from etude.workflows.base import ActResult, Phase
from etude.workflows.dqn import DQN
from tests.runs_compared import assert_same_state
from tests.workflows.dqn_runs import build, dqn_of
from tests.workflows.tiny_replay_runs import start
from tests.workflows.tiny_runs import copied, state_of

PHASE = Phase("train", env_steps=64, total_steps=400)
TASKS = ["CartPole-v1", "MountainCar-v0", "Acrobot-v1"]
REPLAY = {
    "uniform": (),
    "n-step": ("algorithm.n_step=3",),
    "prioritized": ("buffers.replay.type=prioritized",),
    "normalised": ("environment.normalize_observations=static",),
}


def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which of the two ways steps go, whenever it is another one."""
    gone: list[str] = []
    for way in ("_with_arrays", "_with_tensors"):
        original = getattr(rollout, way)

        def noting(*given: Any, way: str = way, original: Any = original) -> None:
            if gone[-1:] != [way]:
                gone.append(way)
            original(*given)

        monkeypatch.setattr(rollout, way, noting)
    return gone


def collected(*words: str, with_arrays: bool, spec: str = "CartPole-v1:dqn") -> Orchestrator:
    run = build(*words, spec=spec)
    if not with_arrays:
        run.workflow.array_twin = lambda: None  # type: ignore[method-assign] # of this run alone
    for count in (1, 49, 70):
        run.workflow.collect(PHASE, count)
        run.workflow.update(PHASE, 2)
    return run


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("task", TASKS)
def test_arrays_lead_where_tensors_do(task: str, num_envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (f"environment.num_envs={num_envs}", "algorithm.epsilon=0.3")
    gone = ways(monkeypatch)
    arrays, tensors = (collected(*words, with_arrays=with_arrays, spec=f"{task}:dqn") for with_arrays in (True, False))
    assert gone == ["_with_tensors", "_with_arrays", "_with_tensors"]  # columns are made at the first step
    assert_same_state(copied(state_of(arrays)), copied(state_of(tensors)))
    assert arrays.collector is not None
    assert tensors.collector is not None
    assert arrays.collector.read() == tensors.collector.read()


@pytest.mark.parametrize("kind", REPLAY)
def test_so_they_do_with_other_ways_of_replaying(kind: str) -> None:
    arrays, tensors = (collected(*REPLAY[kind], "algorithm.epsilon=0.3", with_arrays=way) for way in (True, False))
    assert_same_state(copied(state_of(arrays)), copied(state_of(tensors)))


@pytest.mark.parametrize(
    "words",
    [
        ("environment.wrappers=[{id: reward_scale, factor: 0.5}]",),
        ("algorithm.dueling=true",),
    ],
)
def test_what_has_no_arrays_underneath_goes_the_usual_way(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ways(monkeypatch)
    collected(*words, with_arrays=True)
    assert gone == ["_with_tensors"]


class OwnWay(DQN):
    """Always pushes to the right."""

    def act(self, observation: Any, state: Any, is_first: Tensor, *, mode: Any, generator: Generator) -> ActResult:
        return ActResult(is_first.long() * 0 + 1, state)


def test_an_algorithm_that_acts_its_own_way_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ways(monkeypatch)
    run = build("environment.id=CartPole-v1", f"algorithm.name='{__name__}:OwnWay'", spec=None)
    assert isinstance(dqn_of(run), OwnWay)
    for _ in range(2):
        run.workflow.collect(PHASE, 20)
    assert gone == ["_with_tensors"]
    assert np.all(run.buffers["replay"].columns["action"][:40].numpy() == 1)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("CartPole-v1:ppo", ()),
        ("Pendulum-v1:ppo", ("environment.normalize_observations=rolling",)),
        ("CartPole-v1:a2c", ("network.actor.activation=relu",)),
    ],
)
def test_rollouts_with_log_probabilities_are_the_same_in_arrays(
    spec: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, states = ways(monkeypatch), []
    for with_arrays in (True, False):
        small = ("algorithm.rollout_steps=16", "experiment.compile=off", "environment.num_envs=4", "training.total_steps=1000")
        run = start(spec, (*small, *words, *(("algorithm.batch_size=16",) if spec.endswith("ppo") else ())))
        if not with_arrays:
            run.workflow.array_twin = lambda: None  # type: ignore[method-assign] # of this run alone
        for _ in range(4):
            run._run_cycle()
        states.append(copied(run.state_dict()))
    assert gone == ["_with_tensors", "_with_arrays", "_with_tensors"]
    for state in states:
        del state["shared"]["elapsed_s"]
    assert_same_state(*states)

"""A schedule in updates has a value for each of them, and no cut of a call changes one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.learning import compiled
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.base import Phase
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import copied

BY_COUNT = "{start: 1e-2, end: 1e-4, start_at: 5, end_at: 150, unit: updates}"
WORDS = ("environment.num_envs=1", "experiment.device=cpu", "evaluation.every_steps=0", "experiment.compile=off")
SAC = ("Pendulum-v1:sac", *WORDS, "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]",
       "algorithm.learning_starts=20", "algorithm.batch_size=8", "algorithm.gradient_steps=4")  # fmt: skip
RAINBOW = ("CartPole-v1:dqn", *WORDS, "network.q.hidden_dims=[8]", "algorithm.learning_starts=20", "algorithm.batch_size=8",
           "buffers.replay.type=prioritized",
           "buffers.replay.beta={start: 0.4, end: 1, end_at: 150, unit: updates}")  # fmt: skip


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(function: Any, device: torch.device, *fixed: Any, kept: Any = None) -> Any:
        def call(*given: Any) -> Any:
            with torch.no_grad():
                return function(*given, *fixed)

        return call

    monkeypatch.setattr(compiled, "compile_apart", as_it_is)  # the pure form, without half a minute of compiling


def started(spec: str, *words: str) -> Orchestrator:
    run = assembly.build(assembly.resolve(compose(spec, words=words).config))
    run.begin()
    run.workflow.collect(PHASE, 40)
    return run


PHASE = Phase("learn", total_steps=1000)


def learnt(spec: tuple[str, ...], *pieces: int) -> Any:
    run = started(*spec)
    done = 0
    for count in pieces:
        done += run.workflow.update(PHASE.after(updates=done), count).updates
    assert done == sum(pieces)
    state = run.state_dict()
    state["shared"].pop("elapsed_s")
    return copied(state)


@pytest.mark.parametrize("mode", ["off", "on"], ids=["eager", "compiled"])
@pytest.mark.parametrize("spec", [SAC, RAINBOW], ids=["sac", "prioritised dqn"])
def test_many_updates_at_once_are_as_many_one_by_one(spec: tuple[str, ...], mode: str, uncompiled: None) -> None:
    spec = (*spec, f"experiment.compile={mode}", f"algorithm.learning_rate={BY_COUNT}")
    assert_same_state(learnt(spec, 200), learnt(spec, *(1,) * 200))


def test_a_fraction_of_the_run_is_cut_by_nothing_in_a_phase_of_updates() -> None:
    words = (*SAC, "experiment.compile=off", "algorithm.learning_rate=lin_1e-2", "training.total_steps=40",
             "training.phases=[{name: gather, hooks: [collect], duration_steps: 40},"
             " {name: learn, type: offline, hooks: [update], duration_updates: 90}]")  # fmt: skip
    states = []
    for limits in ((None, None), (7, 7), (0, 0)):
        run = assembly.build(assembly.resolve(compose(words[0], words=words[1:]).config))
        run.begin()
        while (action := run.scheduler.next_action(*limits)) is not None:
            run.scheduler.advance(action, getattr(run.workflow, action.hook)(run.scheduler.view(), action.count))
        assert run.counters.updates == 90
        states.append(copied(run.workflow.state_dict()))
    assert_same_state(states[0], states[1])
    assert_same_state(states[0], states[2])


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The learning rate of each update that is taken eagerly."""
    from etude.learning.execute import Executor

    seen: list[float] = []
    original = Executor.once

    def noted(self: Executor, *given: Any) -> Any:
        seen.append(float(self.update.stages[0].optimizer.param_groups[0]["lr"]))
        return original(self, *given)

    monkeypatch.setattr(Executor, "once", noted)
    return seen


def test_each_minibatch_of_a_rollout_has_its_own_rate_where_it_is_asked_for(rates: list[float]) -> None:
    words = ("environment.num_envs=4", "algorithm.rollout_steps=16", "algorithm.batch_size=16", "algorithm.epochs=2",
             "experiment.device=cpu", "experiment.compile=off", "evaluation.every_steps=0")  # fmt: skip
    for schedule, expected in (
        ("{start: 0.08, end_at: 8, unit: updates}", [0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01]),
        ("{start: 0.08, end_at: 128}", [0.08] * 8),
    ):
        run = assembly.build(
            assembly.resolve(compose("CartPole-v1:ppo", words=[*words, f"algorithm.learning_rate={schedule}"]).config)
        )
        run.begin()
        rates.clear()
        run.workflow.collect(Phase("train", total_steps=1000), 16)
        run.workflow.update(Phase("train", total_steps=1000, env_steps=64, cycle_began=0), 1)
        assert rates == pytest.approx(expected)


@pytest.mark.parametrize(("unit", "expected"), [("decisions", 0.75), ("env_steps", 0.5)])
def test_decisions_count_half_where_each_is_repeated(unit: str, expected: float) -> None:
    words = ("Pendulum-v1:td3", *WORDS, "environment.wrappers=[{id: frame_skip, skip: 2}]", "algorithm.learning_starts=500",
             "algorithm.train_every=1",
             f"algorithm.exploration_noise={{start: 1, end: 0, end_at: 80, unit: {unit}}}")  # fmt: skip
    run = assembly.build(assembly.resolve(compose(words[0], words=words[1:]).config))
    run.begin()
    while run.counters.decisions < 21:
        run._run_cycle()
    assert float(run.workflow.scheduled("exploration_noise")) == pytest.approx(expected)  # as the last cycle began


def test_a_loop_of_a_users_own_learn_moves_with_its_updates() -> None:
    seen: list[float] = []
    run = started("FrozenLake-v1:q_learning", *WORDS, "algorithm.learning_rate={start: 1, end_at: 10, unit: updates}")
    original = run.workflow.learn
    run.workflow.learn = lambda batch: (seen.append(float(run.workflow.scheduled("learning_rate"))), original(batch))[1]  # type: ignore[method-assign]
    for taken in range(3):
        run.workflow.collect(PHASE, 8)
        run.workflow.update(PHASE.after(updates=taken), 1)
    assert seen[:3] == pytest.approx([1.0, 0.9, 0.8])

"""Prioritised replay for algorithms with critics: rows count by their weight, and how wrong critics were is written back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.critics import with_action
from etude.compute.noise import Noise
from etude.config.schedules import Moment
from etude.learning.update import Out, as_out
from etude.orchestration.orchestrator import Orchestrator
from tests.runs_compared import assert_same_run, assert_same_state, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import batch_of, normal, start
from tests.workflows.tiny_runs import copied

TINY = (
    *("network.critic.hidden_dims=[16]", "algorithm.batch_size=16", "algorithm.learning_starts=40"),
    *("algorithm.gradient_steps=2", "algorithm.train_every=2", "environment.num_envs=2", "training.total_steps=200"),
    *("buffers.replay.type=prioritized", "buffers.replay.capacity=100", "evaluation.every_steps=0", "experiment.device=cpu"),
)
SPECS = ["Pendulum-v1:sac", "CartPole-v1:sac", "Pendulum-v1:td3", "Pendulum-v1:tqc", "Pendulum-v1:sql"]


def build(spec: str = "Pendulum-v1:sac", *words: str) -> Orchestrator:
    return start(spec, (*TINY, *words))


@torch.no_grad()
def critic_loss(workflow: Any, batch: Any) -> Out:
    """What the critics' stage says, with noise that is always the same."""
    executor = workflow._executor
    noise = Noise(torch.Generator().manual_seed(3))
    return as_out(executor.update.stages[0].loss(batch, **executor.given(0, {}, {}, noise)))


@pytest.mark.parametrize("spec", SPECS)
def test_weights_multiply_each_rows_loss_and_change_nothing_about_how_wrong_it_is(spec: str) -> None:
    # Defect 26: priorities were accepted, and nobody ever wrote one.
    workflow, batch = batch_of(build(spec))
    assert "weight" in batch
    alone = [critic_loss(workflow, {**batch, "weight": 16.0 * (torch.arange(16) == i)}).loss for i in range(16)]
    weight = normal(16).abs()
    weighed, plain = (critic_loss(workflow, {**batch, "weight": each}) for each in (weight, torch.ones(16)))
    torch.testing.assert_close(weighed.loss, (torch.stack(alone) * weight).mean())
    assert torch.equal(weighed.per_row["priority"], plain.per_row["priority"])
    assert weighed.per_row["priority"].shape == (16,)
    without = critic_loss(workflow, {name: column for name, column in batch.items() if name != "weight"})
    torch.testing.assert_close(without.loss, plain.loss)
    assert not without.per_row, "nobody asks without weights"


def test_a_priority_is_the_mean_distance_of_the_critics_from_their_target() -> None:
    workflow, batch = batch_of(build("Pendulum-v1:td3", "algorithm.target_noise=0"))
    with torch.no_grad():
        following = with_action(batch["next_observation"], workflow.target_actor(batch["next_observation"]).tanh())
        target = batch["reward"] + batch["discount"] * workflow.target_critic(following).squeeze(-1).amin(0)
        found = workflow.critic(with_action(batch["observation"], batch["sample"])).squeeze(-1)
    torch.testing.assert_close(critic_loss(workflow, batch).per_row["priority"], (found - target).abs().mean(0))


def test_priorities_are_written_back_before_the_next_batch_is_drawn() -> None:
    run = build("Pendulum-v1:sac", "experiment.compile=off")  # whose steps can be listened to
    executor, buffer, calls = run.workflow._executor, run.buffers["replay"], list[Any]()
    draw, learn, write = buffer.draw_places, executor.once, buffer.learned  # type: ignore[attr-defined]

    def drawn(*arguments: Any) -> Any:
        calls.append(("draw", batch := draw(*arguments)))
        return batch

    def learnt(*arguments: Any) -> Any:
        calls.append(("learn", reports := learn(*arguments)))
        return reports

    def written(*arguments: Any, **columns: Any) -> None:
        calls.append(("write", columns["priority"].flatten()))
        write(*arguments, **columns)

    buffer.draw_places, buffer.learned, executor.once = drawn, written, learnt  # type: ignore[attr-defined,method-assign]
    while run.counters.updates < 4:
        run._run_cycle()
    assert [name for name, _ in calls] == ["draw", "learn", "write"] * 4
    for (_, (critics, _)), (_, priority) in zip(calls[1::3], calls[2::3], strict=True):
        assert torch.equal(priority, critics.per_row["priority"])
        assert (priority > 0).all()
    assert (calls[-3][1]["weight"] < 1).any(), "what was written back tells rows apart"


def test_a_stopped_run_is_the_run_that_was_not(tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=100", "evaluation.episodes=1")
    whole = train("Pendulum-v1:sac", tmp_path / "whole", *words)
    with stopped_after(29):
        parted = train("Pendulum-v1:sac", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


def test_a_loaded_run_has_the_same_priorities_and_next_batch() -> None:
    first, second = build(), build("Pendulum-v1:sac", "experiment.seed=2")
    while first.counters.updates < 20:
        first._run_cycle()
    second.load_state_dict(copied(first.state_dict()))
    for run in (first, second):
        run.buffers["replay"].set_schedules(Moment(200, 400))  # as every update does
    one, other = (run.buffers["replay"].sample(16, run.streams["buffer"]) for run in (first, second))
    assert_same_state(one, other)
    assert (one["weight"] < 1).any()

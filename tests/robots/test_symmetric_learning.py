"""Learning from a mirror image: both sides count alike, off by default, and a resumed run is the run that was not stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.symmetry import find_mirror, with_images
from etude.config.compose import compose
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.base import Phase
from etude.workflows.ppo import PPO
from tests.runs_compared import assert_resumes

SMALL = ("environment.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=0.5", "environment.max_episode_steps=40")
RUN = (*SMALL, "training.total_steps=160", "evaluation.every_steps=0")


def build(*words: str) -> tuple[Orchestrator, PPO]:
    words = (*SMALL, "experiment.device=cpu", *words)
    orchestrator = assembly.build(assembly.resolve(compose("quadruped-flat:ppo", words=words).config))
    assert isinstance(orchestrator.workflow, PPO)
    return orchestrator, orchestrator.workflow


def prepared(workflow: PPO, collect: int = 8) -> Any:
    collector = workflow.context.collector
    assert collector is not None
    collector.start(workflow.initial_state)
    workflow.collect(Phase("train"), collect)
    return workflow._prepare(workflow.context.buffers["rollout"].columns)  # type: ignore[attr-defined] # a rollout


def test_a_batch_and_its_mirror_image_give_the_same_gradient_as_those_of_its_mirror_image() -> None:
    """Learning from data and from its mirror image is the same, whatever the policy: the loss knows no side."""
    _, workflow = build("algorithm.symmetry=augment", "environment.normalize_observations=off")
    mirror = workflow._mirror
    assert mirror is not None
    batch = prepared(workflow)
    image = {**batch, "observation": mirror.observe(batch["observation"]), "sample": mirror.action(batch["sample"])}
    losses = [workflow.loss(rows)[0] for rows in (batch, image)]
    gradients = [torch.autograd.grad(loss, [*workflow.actor.parameters()]) for loss in losses]
    assert torch.allclose(*losses, rtol=1e-5)
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert len(with_images(batch, mirror)["log_prob"]) == 64


def test_statistics_know_no_side() -> None:
    _, workflow = build("algorithm.symmetry=augment", "environment.normalize_observations=rolling")
    mirror = workflow._mirror
    assert mirror is not None
    batch = prepared(workflow)
    normalizer, columns = workflow.normalizer, workflow.context.buffers["rollout"].columns  # type: ignore[attr-defined]
    raw = {name: part.flatten(0, 1) for name, part in columns["observation"].items()}
    after, before = mirror.observe(normalizer(raw)), normalizer(mirror.observe(raw))
    for name in raw:
        assert torch.allclose(after[name], before[name], atol=1e-4), name  # type: ignore[index] # groups by name
    assert batch["observation"].keys() == raw.keys()


def test_the_mirror_loss_keeps_the_two_sides_together() -> None:
    def error(coef: float) -> float:
        _, workflow = build("algorithm.symmetry=loss", f"algorithm.symmetry_coef={coef}", "algorithm.adaptive_kl=null")
        batch = prepared(workflow)
        return [float(workflow.learn(batch)["train/symmetry_loss"]) for _ in range(40)][-1]

    free, held = error(0.0), error(100.0)
    assert held < 0.2 * free


@pytest.mark.parametrize("how", ["augment", "loss"])
def test_a_resumed_run_with_symmetry_is_the_run_that_was_not_stopped(how: str, tmp_path: Path) -> None:
    assert_resumes("quadruped-flat:ppo", tmp_path, *RUN, f"algorithm.symmetry={how}", after=2)


def test_it_is_off_unless_asked_for_and_only_where_there_is_a_mirror_image() -> None:
    assert build()[1]._mirror is None
    with pytest.raises(UserError, match=r"algorithm.symmetry=augment: CartPole-v1 has no mirror image; robots have"):
        assembly.build(assembly.resolve(compose("CartPole-v1:ppo", words=["algorithm.symmetry=augment"]).config))
    with pytest.raises(UserError, match=r"environment\.wrappers looks in a mirror"):
        build("algorithm.symmetry=loss", "environment.wrappers=[{id: reward_scale, factor: 2.0}]")
    with pytest.raises(UserError, match=r"nobody knows how what a network remembers looks in a mirror"):
        build("algorithm.symmetry=loss", "network.actor.type=gru", "network.critic.type=gru", "algorithm.batch_size=1.0")
    assert find_mirror(None, "augment", "a policy that only acts", torch.device("cpu")) is None

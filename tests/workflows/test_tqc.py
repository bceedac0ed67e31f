"""Truncated quantile critics: their loss by a slow loop, what is dropped, and that it is the same run however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.critics import with_action
from etude.components.quantiles import quantile_huber_losses, quantile_levels
from etude.compute.noise import Noise
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, batch_of, normal, start

TINY = (
    *("network.actor.hidden_dims=[16]", "network.critic.hidden_dims=[16]", "algorithm.batch_size=16"),
    *("algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0"),
    *("algorithm.quantiles=5", "algorithm.drop_quantiles=2"),
)


def build(*words: str, spec: str = "Pendulum-v1:tqc") -> Orchestrator:
    return start(spec, (*TINY, *words))


def filled(*words: str) -> tuple[Any, dict[str, Any]]:
    return batch_of(build(*words))


def slow_loss(values: list[float], targets: list[float]) -> float:
    """The mean over pairs of |level − 1(target < value)| · Huber(target − value)."""
    total = 0.0
    for i, value in enumerate(values):
        level = (2 * i + 1) / (2 * len(values))
        for target in targets:
            error = target - value
            huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
            total += (1 - level if error < 0 else level) * huber
    return total / len(values) / len(targets)


@pytest.mark.parametrize(("quantiles", "samples"), [(1, 1), (5, 3), (3, 12)])
def test_the_loss_is_the_slow_loop(quantiles: int, samples: int) -> None:
    generator = torch.Generator().manual_seed(3)
    values = 2 * torch.randn(4, quantiles, generator=generator)
    targets = 2 * torch.randn(4, samples, generator=generator)
    found = quantile_huber_losses(values, targets, quantile_levels(quantiles)).mean(-1)
    expected = [slow_loss(v.tolist(), t.tolist()) for v, t in zip(values, targets, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_the_loss_is_least_at_the_quantiles() -> None:
    samples = torch.rand(1, 4000, generator=torch.Generator().manual_seed(1)) * 100
    values = torch.full((1, 4), 50.0, requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=1.0)
    for _ in range(400):
        optimizer.zero_grad()
        quantile_huber_losses(values, samples, quantile_levels(4)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(values.detach()[0], torch.tensor([12.5, 37.5, 62.5, 87.5]), rtol=0, atol=2.0)


@pytest.mark.parametrize(("critics", "dropped"), [(2, 0), (2, 2), (3, 1)])
def test_targets_are_by_the_book(critics: int, dropped: int) -> None:
    w, batch = filled("algorithm.reward_scale=3", f"algorithm.critics={critics}", f"algorithm.drop_quantiles={dropped}")
    noise = normal(2, 16, 1)
    with torch.no_grad():
        action, log_prob = w.head(w.actor(batch["next_observation"])).draw(noise[1])
        pooled = w.target_critic(with_action(batch["next_observation"], action))
        values = w.critic(with_action(batch["observation"], batch["sample"]))
        alpha = w.temperature().item()
    losses = []
    for row in range(16):
        lowest = sorted(pooled[:, row].flatten().tolist())[: critics * (5 - dropped)]
        lives = 0.0 if batch["terminated"][row] else 0.99
        y = [3 * batch["reward"][row].item() + lives * (z - alpha * log_prob[row].item()) for z in lowest]
        losses += [slow_loss(values[critic, row].tolist(), y) for critic in range(critics)]
    expected = torch.tensor(sum(losses) / len(losses))
    out = w.critic_loss(batch, Noise(drawn={"policy": noise}))
    torch.testing.assert_close(out.loss.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["min", "mean"])
def test_the_actor_climbs_the_mean_of_the_critics_or_the_lowest(reduction: str) -> None:
    w, batch = filled(f"algorithm.actor_q_reduction={reduction}", "algorithm.temperature=0.3")
    noise = normal(2, 16, 1)
    loss, _ = w.actor_loss(batch, Noise(drawn={"policy": noise}))
    action, log_prob = w.head(w.actor(batch["observation"])).draw(noise[0])
    means = w.critic(with_action(batch["observation"], action)).mean(-1)
    believed = means.mean(0) if reduction == "mean" else means.min(0).values
    torch.testing.assert_close(loss, (0.3 * log_prob - believed).mean())


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), marks=pytest.mark.slow),  # as test_conformance.py does in every suite
        ("algorithm.quantiles=1", "algorithm.drop_quantiles=0", "algorithm.critics=1"),
    ],
)
def test_a_stopped_run_is_the_run_that_was_not(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=100", "evaluation.episodes=1", *words)
    whole = train("Pendulum-v1:tqc", tmp_path / "whole", *words)
    with stopped_after(57):
        parted = train("Pendulum-v1:tqc", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.slow  # it compiles; SAC and TD3 do in every suite
@pytest.mark.slow
def test_a_compiled_update_equals_an_eager_one() -> None:
    assert_compiled_equals_eager("Pendulum-v1:tqc", TINY, ("actor", "critic", "target_critic", "temperature"))


def test_what_it_can_not_do_is_said() -> None:
    with pytest.raises(UserError, match="tqc acts in Box spaces, not Discrete"):
        build(spec="CartPole-v1:tqc")
    with pytest.raises(UserError, match="drop_quantiles=5: leaves nothing"):
        build("algorithm.drop_quantiles=5")

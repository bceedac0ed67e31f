"""TD3: its losses, its delay, its noise, and that it is the same run however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.critics import with_action
from etude.compute.noise import Noise
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, batch_of, normal, start

TINY = (
    *("network.actor.hidden_dims=[16]", "network.critic.hidden_dims=[16]", "algorithm.batch_size=16"),
    *("algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0"),
    *("algorithm.train_every=1", "algorithm.gradient_steps=1"),
)
DDPG = ("algorithm.critics=1", "algorithm.policy_delay=1", "algorithm.target_noise=0")


def build(*words: str, spec: str = "Pendulum-v1:td3") -> Orchestrator:
    return start(spec, (*TINY, *words))


def filled(*words: str) -> tuple[Any, dict[str, Any]]:
    return batch_of(build(*words))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), marks=pytest.mark.slow),  # as test_conformance.py does in every suite
        DDPG,
        ("algorithm.gradient_steps=4", "algorithm.n_step=3"),
    ],
)
def test_a_stopped_run_is_the_run_that_was_not(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=100", "evaluation.episodes=1", *words)
    whole = train("Pendulum-v1:td3", tmp_path / "whole", *words)
    with stopped_after(57):
        parted = train("Pendulum-v1:td3", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.parametrize("words", [("algorithm.target_noise_clip=0.1",), DDPG])
def test_targets_are_by_the_book(words: tuple[str, ...]) -> None:
    w, batch = filled("algorithm.reward_scale=3", *words)
    s, drawn = w.settings, normal(16, 1)
    with torch.no_grad():
        noise = torch.clamp(s.target_noise * drawn, -s.target_noise_clip, s.target_noise_clip)
        assert not s.target_noise or (noise.abs() == 0.1).any()
        action = torch.clamp(torch.tanh(w.target_actor(batch["next_observation"])) + noise, -1, 1)
        q = w.target_critic(with_action(batch["next_observation"], action)).squeeze(-1)
        y = 3 * batch["reward"] + 0.98 * (~batch["terminated"]) * q.min(0).values
        values = w.critic(with_action(batch["observation"], batch["sample"])).squeeze(-1)
        expected = sum(((value - y) ** 2).mean() for value in values)
    assert len(values) == s.critics
    out = w.critic_loss(batch, Noise(drawn={"target": drawn}))
    torch.testing.assert_close(out.loss.detach(), expected, rtol=1e-5, atol=1e-5)


def test_the_actor_climbs_the_first_critic() -> None:
    w, batch = filled()
    loss, _ = w.actor_loss(batch)
    action = torch.tanh(w.actor(batch["observation"]))
    torch.testing.assert_close(loss, -w.critic(with_action(batch["observation"], action))[0].mean())


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


@pytest.mark.parametrize("delay", [1, 3])
def test_actor_and_targets_move_once_in_so_many_updates(delay: int) -> None:
    orchestrator = build(f"algorithm.policy_delay={delay}")
    w: Any = orchestrator.workflow
    moved = []
    before = None
    for _ in range(200):
        roles = (w.actor, w.target_actor, w.target_critic, w.critic)
        before, updates = [weights(role) for role in roles], orchestrator.counters.updates
        if not orchestrator._run_cycle():
            break
        if orchestrator.counters.updates > updates:
            moved.append([not torch.equal(old, weights(role)) for old, role in zip(before, roles, strict=True)])
    assert len(moved) > 10
    for update, (*delayed, critic) in enumerate(moved, 1):
        assert critic
        assert delayed == [update % delay == 0] * 3, update


@pytest.mark.parametrize("std", [0.0, 0.3])
def test_actions_are_noisy_only_while_collecting(std: float) -> None:
    orchestrator = build(f"algorithm.exploration_noise={std}", "algorithm.learning_starts=0", "algorithm.batch_size=2")
    w: Any = orchestrator.workflow
    observation, first = torch.zeros(4000, 3), torch.ones(4000, dtype=torch.bool)
    generator = torch.Generator().manual_seed(1)
    acted = {mode: w.act(observation, None, first, mode=mode, generator=generator) for mode in ("explore", "sample", "greedy")}
    assert torch.equal(acted["sample"].action, acted["greedy"].action)
    assert not w.policy().stochastic
    noise = acted["explore"].extras["sample"] - acted["greedy"].extras["sample"]
    assert noise.std().item() == pytest.approx(std, rel=0.05)
    torch.testing.assert_close(acted["explore"].action, 2 * acted["explore"].extras["sample"])


def test_exactly_so_many_random_actions_come_before_the_first_update() -> None:
    orchestrator = build("algorithm.exploration_noise=0")
    while orchestrator.counters.env_steps < 100:
        orchestrator._run_cycle()
    samples = orchestrator.buffers["replay"].columns["sample"][:50].abs()  # type: ignore[attr-defined]
    assert samples[:20].max() > 0.5
    assert samples[20].max() < 0.1  # the untrained actor hardly acts


@pytest.mark.slow  # it compiles; DQN does in every suite
def test_a_compiled_update_equals_an_eager_one() -> None:
    assert_compiled_equals_eager("Pendulum-v1:td3", TINY, ("actor", "critic", "target_actor", "target_critic"), updates=4)


def test_what_it_can_not_do_is_said() -> None:
    with pytest.raises(UserError, match="td3 acts in Box spaces, not Discrete"):
        build(spec="CartPole-v1:td3")
    with pytest.raises(UserError, match="replays old observations"):
        build("environment.normalize_observations=rolling")

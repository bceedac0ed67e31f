"""Soft actor-critic: its losses, its temperature, its warm-up, and that it is the same run however it is cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from etude.components.critics import with_action
from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.workflows.sac import SAC, Temperature
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, batch_of, normal, start

TINY = (
    *("network.actor.hidden_dims=[16]", "network.critic.hidden_dims=[16]", "algorithm.batch_size=16"),
    *("algorithm.train_every=1", "algorithm.gradient_steps=1", "algorithm.target_entropy_scale=0.98"),
    *("algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0"),
)
MASKED = "etude.testing.probes:probe/Masked-v0:sac"


def build(spec: str, *words: str) -> Orchestrator:
    return start(spec, (*TINY, *words))


def rows(orchestrator: Orchestrator) -> dict[str, Any]:
    return batch_of(orchestrator)[1]


@pytest.mark.parametrize(
    "spec",
    ["Pendulum-v1:sac", pytest.param("CartPole-v1:sac", marks=pytest.mark.slow)],  # as test_conformance.py in every suite
)
def test_a_stopped_run_is_the_run_that_was_not(spec: str, tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=100", "evaluation.episodes=1")
    whole = train(spec, tmp_path / "whole", *words)
    with stopped_after(57):
        parted = train(spec, tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


def test_targets_are_by_the_book() -> None:
    orchestrator = build("Pendulum-v1:sac", "algorithm.reward_scale=3")
    w, batch = orchestrator.workflow, rows(orchestrator)
    noise = normal(2, 16, 1)
    with torch.no_grad():
        mean, log_std = w.actor(batch["next_observation"]).chunk(2, -1)  # type: ignore[attr-defined]
        before = mean + log_std.clamp(-20, 2).exp() * noise[1]
        density = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp()).log_prob(before).sum(-1)
        log_prob = density - torch.log(1 - before.tanh().square() + 1e-9).sum(-1)
        q = w.target_critic(with_action(batch["next_observation"], before.tanh())).squeeze(-1)  # type: ignore[attr-defined]
        y = 3 * batch["reward"] + 0.99 * (~batch["terminated"]) * (q.amin(0) - w.temperature() * log_prob)  # type: ignore[attr-defined]
        values = w.critic(with_action(batch["observation"], batch["sample"])).squeeze(-1)  # type: ignore[attr-defined]
        expected = 0.5 * sum(((value - y) ** 2).mean() for value in values)
    out = w.critic_loss(batch, Noise(drawn={"policy": noise}))  # type: ignore[attr-defined]
    torch.testing.assert_close(out.loss.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["min", "mean"])
def test_the_actor_climbs_the_lowest_critic_or_their_mean(reduction: str) -> None:
    orchestrator = build("Pendulum-v1:sac", f"algorithm.actor_q_reduction={reduction}", "algorithm.temperature=0.3")
    w, batch = orchestrator.workflow, rows(orchestrator)
    noise = normal(2, 16, 1)
    loss, metrics = w.actor_loss(batch, Noise(drawn={"policy": noise}))  # type: ignore[attr-defined]
    action, log_prob = w.head(w.actor(batch["observation"])).draw(noise[0])  # type: ignore[attr-defined]
    q = w.critic(with_action(batch["observation"], action)).squeeze(-1)  # type: ignore[attr-defined]
    believed = q.amin(0) if reduction == "min" else q.mean(0)
    torch.testing.assert_close(loss, (0.3 * log_prob - believed).mean())
    assert "train/temperature_loss" not in metrics


def test_the_temperature_rises_below_the_target_entropy_and_falls_above_it() -> None:
    w = build("Pendulum-v1:sac").workflow
    temperature, policy = w.temperature, w.head(torch.zeros(4, 2))  # type: ignore[attr-defined]
    assert temperature.target(policy) == -1.0
    for entropy, direction in ((-3.0, -1), (2.0, 1)):
        (gradient,) = torch.autograd.grad(temperature.loss(torch.full((4,), entropy), policy), [temperature.log_alpha])
        assert math.copysign(1, gradient.item()) == direction


@pytest.mark.parametrize("auto", ["auto", "null"])
def test_the_target_entropy_follows_from_the_actions(auto: str) -> None:
    """ALG-10: minus the dimensions of a box, a share of the greatest entropy of discrete actions, or the number given."""
    for space, expected in ((spaces.Box(-1, 1, (3,)), -3.0), (spaces.Discrete(5), 0.9 * math.log(5))):
        words = (f"algorithm.target_entropy={auto}", "algorithm.target_entropy_scale=0.9")
        settings = compose("Pendulum-v1:sac", words=words).config.algorithm
        head = SAC.head_of(space)
        assert Temperature(settings, head).target(head(torch.zeros(2, head.size))) == pytest.approx(expected)
    given = compose("Pendulum-v1:sac", words=("algorithm.target_entropy=-0.5",)).config.algorithm
    assert Temperature(given, head).target(head(torch.zeros(2, head.size))) == -0.5


def test_the_target_entropy_of_masked_actions_can_be_reached() -> None:
    # Defect 25: the target was that of all actions, which a policy among two of a hundred never meets: α grew without end.
    settings = compose("CartPole-v1:sac", words=("algorithm.target_entropy_scale=0.98",)).config.algorithm
    head = SAC.head_of(spaces.Discrete(100))
    mask = torch.zeros(3, 100)
    mask[0, :2], mask[1, 7], mask[2, :] = 1, 1, 1
    uniform = head(torch.zeros(3, 100), mask)
    temperature = Temperature(settings, head)
    torch.testing.assert_close(temperature.target(uniform), 0.98 * torch.tensor([2.0, 1.0, 100.0]).log())
    (gradient,) = torch.autograd.grad(temperature.loss(uniform.entropy(), uniform), [temperature.log_alpha])
    assert gradient > 0, "a policy that is as random as it may be has too much entropy, never too little"


def test_masked_actions_are_learnt() -> None:
    # Defect 25: NaN at the first update whose batch has an end, where nothing is allowed; and a temperature that ran away.
    words = ("training.total_steps=640", "algorithm.learning_rate=1e-2", "algorithm.target_entropy_scale=0.8")
    orchestrator = build(MASKED, *words, "algorithm.train_every=8", "algorithm.gradient_steps=8")
    *_, late = [row for row in orchestrator.rows() if "train/alpha" in row]
    reachable = sum(math.log(allowed) for allowed in (2, 3, 4)) / 3
    assert late["train/entropy"] == pytest.approx(0.8 * reachable, rel=0.2)
    assert late["train/alpha"] < 3


def test_a_fixed_temperature_stays() -> None:
    orchestrator = build("Pendulum-v1:sac", "algorithm.temperature=0.2")
    while orchestrator._run_cycle():
        pass
    assert orchestrator.workflow.temperature().item() == pytest.approx(0.2)  # type: ignore[attr-defined]


def test_exactly_so_many_random_actions_come_before_the_first_update() -> None:
    orchestrator = build("Pendulum-v1:sac")
    w, calls = orchestrator.workflow, []
    original = w.act_randomly

    def counted(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        calls.append(len(result.action))
        return result

    w.act_randomly = counted  # type: ignore[method-assign]
    while orchestrator._run_cycle():
        if orchestrator.counters.updates == 1:
            assert orchestrator.counters.env_steps == 40
    assert sum(calls) == 40
    assert orchestrator.counters.updates == 1 + (200 - 40) // 2


@pytest.mark.slow  # it compiles; DQN does in every suite
@pytest.mark.parametrize("spec", ["Pendulum-v1:sac", MASKED])
def test_a_compiled_update_equals_an_eager_one(spec: str) -> None:
    assert_compiled_equals_eager(spec, TINY, ("actor", "critic", "target_critic", "temperature"))


def test_what_it_can_not_do_is_said() -> None:
    with pytest.raises(UserError, match="replays old observations"):
        build("Pendulum-v1:sac", "environment.normalize_observations=rolling")

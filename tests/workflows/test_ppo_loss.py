"""Each option of PPO's loss against numbers worked out by hand, and its gradient against a plain reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, distributions

from etude.config.schedules import Schedule
from etude.config.validate import Part
from etude.errors import ConfigError
from etude.learning.execute import Table
from etude.workflows.base import Phase
from etude.workflows.ppo import ADAPTIVE_RATE_RANGE, PPO
from tests.workflows.tiny_runs import Counting, learner, ppo_config, ppo_of, start

OBSERVATION = spaces.Box(-1, 1, (1,), np.float32)

# Two equally likely actions, so each has probability 1/2; the old policy's probabilities make the ratios 2, 1/2, 2, 1/2.
ROWS = {
    "observation": torch.zeros(4, 1),
    "sample": torch.tensor([0, 1, 1, 0]),
    "log_prob": torch.tensor([0.25, 1.0, 0.25, 1.0]).log(),
    "advantages": torch.tensor([1.0, 1.0, -1.0, -1.0]),
    "values": torch.tensor([1.0, 0.5, 2.0, 1.0]),
    "returns": torch.tensor([1.0, 2.0, 0.0, 1.0]),
}
# min(2, 1.2) + min(1/2, 0.8) + min(-2, -1.2) + min(-1/2, -0.8), averaged and negated
POLICY_LOSS = -(1.2 + 0.5 - 2.0 - 0.8) / 4
KL = ((2 - 1 - math.log(2)) + (0.5 - 1 + math.log(2))) / 2


def uniform(**options: Any) -> PPO:
    """Both actions equally likely everywhere, and every value 1."""
    options = {"normalize_advantages": "off", **options}
    workflow = learner(ppo_config(hidden=(), **options), OBSERVATION, spaces.Discrete(2))
    with torch.no_grad():
        for parameter in (*workflow.actor.parameters(), *workflow.critic.parameters()):
            parameter.zero_()
        workflow.critic.layers[-1].bias.fill_(1.0)
    return workflow


def metrics(workflow: PPO, **rows: Tensor) -> dict[str, float]:
    return {
        name.removeprefix("train/"): torch.as_tensor(value).item() for name, value in workflow.learn({**ROWS, **rows}).items()
    }


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_the_clipped_surrogate_by_hand() -> None:
    got = metrics(uniform())
    assert got["policy_loss"] == pytest.approx(POLICY_LOSS, rel=1e-6)
    assert got["approx_kl"] == pytest.approx(KL, rel=1e-5)
    assert got["clip_fraction"] == 1.0
    assert got["entropy"] == pytest.approx(math.log(2))
    assert got["value_loss"] == pytest.approx((0 + 1 + 1 + 0) / 4)
    assert got["loss"] == pytest.approx(POLICY_LOSS + 0.5 * 0.5)


@pytest.mark.parametrize(
    ("clip", "expected", "fraction"),
    [
        (0.6, -(1.6 + 0.5 - 2.0 - 0.5) / 4, 0.5),
        (5.0, -(2.0 + 0.5 - 2.0 - 0.5) / 4, 0.0),
        (0.1, -(1.1 + 0.5 - 2.0 - 0.9) / 4, 1.0),
    ],
)
def test_the_clip_range_by_hand(clip: float, expected: float, fraction: float) -> None:
    got = metrics(uniform(clip_range=Schedule.constant(clip)))
    assert got["policy_loss"] == pytest.approx(expected, rel=1e-6)
    assert got["clip_fraction"] == fraction


def test_the_clipped_value_loss_by_hand() -> None:
    # Near the old values (1, 0.5, 2, 1) by at most 0.2: 1, 0.7, 1.8, 1; the larger error of the two counts.
    expected = (0 + max(1, (0.7 - 2) ** 2) + max(1, 1.8**2) + 0) / 4
    assert metrics(uniform(clip_value_loss=0.2))["value_loss"] == pytest.approx(expected, rel=1e-6)
    assert metrics(uniform(clip_value_loss=100.0))["value_loss"] == pytest.approx(0.5)
    assert metrics(uniform(clip_value_loss=None))["value_loss"] == pytest.approx(0.5)


def test_the_coefficients_weigh_the_terms() -> None:
    workflow = uniform(value_coef=Schedule.constant(0.25), entropy_coef=Schedule.constant(0.1))
    assert metrics(workflow)["loss"] == pytest.approx(POLICY_LOSS + 0.25 * 0.5 - 0.1 * math.log(2), rel=1e-6)


def test_advantages_are_scaled_over_the_minibatch() -> None:
    advantages = torch.tensor([3.0, 5.0, -1.0, 1.0])  # mean 2, deviation √(20/3)
    scaled = (advantages - 2) / math.sqrt(20 / 3)
    expected = metrics(uniform(), advantages=scaled)["policy_loss"]
    assert metrics(uniform(normalize_advantages="batch"), advantages=advantages)["policy_loss"] == pytest.approx(expected)
    raw = -(3 * 1.2 + 5 * 0.5 - 1 * 2 + 1 * 0.5) / 4
    assert metrics(uniform(), advantages=advantages)["policy_loss"] == pytest.approx(raw, rel=1e-6)
    assert metrics(uniform(normalize_advantages="rollout"), advantages=advantages)["policy_loss"] == pytest.approx(
        raw, rel=1e-6
    )


@pytest.mark.parametrize(("mode", "scaled"), [("rollout", True), ("batch", False), ("off", False)])
def test_advantages_are_scaled_over_the_rollout(mode: str, scaled: bool) -> None:
    config = ppo_config(normalize_advantages=mode)
    run = start(config)
    run.workflow.collect(Phase("train"), 16)
    columns = run.buffers["rollout"].columns
    advantages = ppo_of(run)._prepare(columns)["advantages"]
    is_standard = abs(float(advantages.mean())) < 1e-5 and abs(float(advantages.std()) - 1) < 1e-4
    assert is_standard == scaled


def test_values_and_advantages_are_computed_from_the_rollout() -> None:
    """By a slow loop over one environment at a time, from the network's own values."""
    config = ppo_config(gamma=0.9, gae_lambda=0.8, normalize_advantages="off", num_envs=3)
    run = start(config, Counting(3, 5, terminates=False, shows_age=True))
    run.workflow.collect(Phase("train"), 16)
    workflow, columns = ppo_of(run), run.buffers["rollout"].columns
    batch = workflow._prepare(columns)
    for n in range(3):
        following = 0.0
        for t in reversed(range(16)):
            with torch.no_grad():
                value = float(workflow.critic(columns["observation"][t, n][None]))
                after = float(workflow.critic(columns["next_observation"][t, n][None]))
            delta = 1.0 + 0.9 * after - value
            following = delta + 0.9 * 0.8 * following * (not columns["truncated"][t, n])
            row = n * 16 + t  # each environment's steps together
            assert float(batch["values"][row]) == pytest.approx(value, abs=1e-5)
            assert float(batch["advantages"][row]) == pytest.approx(following, abs=1e-4)
            assert float(batch["returns"][row]) == pytest.approx(following + value, abs=1e-4)
            assert torch.equal(batch["observation"][row], columns["observation"][t, n])
            assert torch.equal(batch["sample"][row], columns["sample"][t, n])


# ---- the gradient ---------------------------------------------------------------------------------------------------


def reference_loss(workflow: PPO, batch: dict[str, Any], distribution: Any, clip: float) -> Tensor:
    """One row at a time, with torch's own distributions."""
    log_probs, entropies = distribution.log_prob(batch["sample"]), distribution.entropy()
    values = workflow.critic(batch["observation"])[:, 0]
    total = torch.zeros(())
    for i in range(len(values)):
        ratio = torch.exp(log_probs[i] - batch["log_prob"][i])
        bounded = torch.clamp(ratio, 1 - clip, 1 + clip)
        surrogate = torch.min(ratio * batch["advantages"][i], bounded * batch["advantages"][i])
        total = total - surrogate + 0.5 * (values[i] - batch["returns"][i]) ** 2 - 0.01 * entropies[i]
    return total / len(values)


CASES: dict[str, tuple[Any, Any]] = {
    "discrete": (spaces.Discrete(3), lambda out, head: distributions.Categorical(logits=out)),
    "box": (
        spaces.Box(-1, 1, (2,)),
        lambda out, head: distributions.Independent(distributions.Normal(out, head.log_std.exp().expand_as(out)), 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_follows_the_gradient_of_the_loss(name: str) -> None:
    action_space, reference = CASES[name]
    config = ppo_config(
        optimizer=Part("sgd"),
        learning_rate=Schedule.constant(0.1),
        entropy_coef=Schedule.constant(0.01),
        normalize_advantages="off",
        max_grad_norm=None,
    )
    workflow = learner(config, spaces.Box(-1, 1, (3,), np.float32), action_space)
    with torch.no_grad():
        workflow.actor.layers[-1].weight.mul_(100)  # a policy that is not uniform
    draw = torch.Generator().manual_seed(3)
    observation = torch.randn(10, 3, generator=draw)
    with torch.no_grad():
        now = workflow.head(workflow.actor(observation))
        sample = now.sample(draw)
        old = now.log_prob(sample) + 0.3 * torch.randn(10, generator=draw)
    batch = {
        "observation": observation,
        "sample": sample,
        "log_prob": old,
        "advantages": torch.randn(10, generator=draw),
        "values": torch.zeros(10),
        "returns": torch.randn(10, generator=draw),
    }
    parameters = [*workflow.actor.parameters(), *workflow.head.parameters(), *workflow.critic.parameters()]
    loss = reference_loss(workflow, batch, reference(workflow.actor(observation), workflow.head), 0.2)
    gradients = torch.autograd.grad(loss, parameters)
    expected = [p.detach() - 0.1 * g for p, g in zip(parameters, gradients, strict=True)]
    got = workflow.learn(batch)
    torch.testing.assert_close(got["train/loss"], loss)
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    torch.testing.assert_close(got["train/grad_norm"], norm)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted)


def test_the_gradient_is_clipped_to_its_norm() -> None:
    weights = []
    for bound in (None, 1e-3):
        workflow = uniform(optimizer=Part("sgd"), learning_rate=Schedule.constant(1.0), max_grad_norm=bound)
        before = [p.detach().clone() for p in workflow.critic.parameters()]
        norm = metrics(workflow)["grad_norm"]
        weights.append(
            torch.cat([(p.detach() - b).flatten() for p, b in zip(workflow.critic.parameters(), before, strict=True)])
        )
    assert norm > 1e-3  # reported as it was before clipping
    torch.testing.assert_close(weights[1], weights[0] * 1e-3 / norm, rtol=1e-3, atol=1e-7)


# ---- stopping and adapting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize(
    ("part", "rate"),
    [(Part("adamw", {"weight_decay": 0.1}), 0.05), (Part("sgd", {"momentum": 0.9}), 5.0)],
    ids=["adamw", "sgd"],
)
def test_a_breach_of_target_kl_leaves_the_rest_of_the_rollout_without_effect(
    on_device: bool, part: Part, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ppo_config(target_kl=1e-6, learning_rate=Schedule.constant(rate), epochs=4, optimizer=part)
    run = start(replace(config, experiment=replace(config.experiment, compile="off")))
    workflow, weights = ppo_of(run), []
    executor = workflow._executor
    take_step = executor.once

    def watched(*arguments: Any) -> Any:
        result = take_step(*arguments)
        weights.append([p.detach().clone() for p in (*workflow.actor.parameters(), *workflow.critic.parameters())])
        return result

    monkeypatch.setattr(executor, "once", watched)
    if on_device:  # where asking costs, every step is computed and skipped by the optimiser
        monkeypatch.setattr(executor, "is_over", lambda: False)
    workflow.collect(Phase("train"), 16)
    result = workflow.update(Phase("train"), 1)
    assert result.updates == 16
    logged = workflow.metrics.drain()
    assert logged["train/kl_stop_triggered"] == 1.0
    assert logged["train/steps_taken"] == 1.0  # Defect 31: `updates` is what was asked for, and nothing said what was done
    assert len(weights) == (16 if on_device else 2)
    assert not torch.equal(weights[0][0], start(ppo_config()).workflow.actor.layers[0].weight)  # type: ignore[attr-defined]
    for later in weights[1:]:
        assert all(torch.equal(a, b) for a, b in zip(weights[0], later, strict=True))
    steps = [int(state["step"]) for state in workflow.optimizer.state.values() if "step" in state]
    assert set(steps) <= {1}


def test_the_next_rollout_is_learnt_from_again_after_a_stop() -> None:
    run = start(ppo_config(target_kl=1e-6, learning_rate=Schedule.constant(0.05)))
    for _ in range(2):
        before = [p.detach().clone() for p in ppo_of(run).actor.parameters()]
        run.workflow.collect(Phase("train"), 16)
        run.workflow.update(Phase("train"), 1)
        assert not torch.equal(before[0], next(iter(ppo_of(run).actor.parameters())))


def test_without_a_breach_nothing_is_stopped() -> None:
    run = start(ppo_config(target_kl=1e6))
    run.workflow.collect(Phase("train"), 16)
    run.workflow.update(Phase("train"), 1)
    logged = run.workflow.metrics.drain()
    assert logged["train/kl_stop_triggered"] == 0.0
    assert logged["train/steps_taken"] == 8.0


def test_steps_that_were_left_out_for_nan_are_not_taken() -> None:
    run = start(ppo_config(target_kl=1e6))
    workflow = ppo_of(run)
    keys = ("train/loss", "train/approx_kl", "train/skipped")
    steps = torch.tensor([[0.0, 0.0, 0.0], [0.0, torch.nan, 1.0], [0.0, 1.0, 0.0], [0.0, 1e7, 0.0], [0.0, 0.0, 0.0]])
    assert workflow._taken(Table(keys, steps)) == 2


def test_an_adaptive_rate_moves_by_half_and_stays_in_its_range() -> None:
    workflow = uniform(adaptive_kl=0.01, learning_rate=Schedule.constant(1e-3))
    rate = workflow.scheduled("learning_rate")

    def after(kl: float) -> float:
        workflow._note_divergence({"train/approx_kl": torch.tensor(kl)})
        assert float(workflow.optimizer.param_groups[0]["lr"]) == float(rate)
        return float(rate)

    assert after(0.021) == pytest.approx(1e-3 / 1.5)
    assert after(0.015) == pytest.approx(1e-3 / 1.5)
    assert after(0.006) == pytest.approx(1e-3 / 1.5)
    assert after(0.004) == pytest.approx(1e-3)
    for _ in range(30):
        after(1.0)
    assert float(rate) == pytest.approx(ADAPTIVE_RATE_RANGE[0]) == pytest.approx(1e-5)
    for _ in range(30):
        after(0.0)
    assert float(rate) == pytest.approx(ADAPTIVE_RATE_RANGE[1]) == pytest.approx(1e-2)


def test_an_adapted_rate_is_kept_from_rollout_to_rollout_and_through_a_save() -> None:
    config = ppo_config(adaptive_kl=0.01)
    run = start(config)
    run.workflow.collect(Phase("train"), 16)
    run.workflow.update(Phase("train"), 1)
    adapted = run.workflow.hyper_parameters()["learning_rate"]
    assert adapted != pytest.approx(3e-4)
    ppo_of(run).set_schedules(Phase("train", env_steps=500, total_steps=1_000))
    assert run.workflow.hyper_parameters()["learning_rate"] == adapted
    fresh = start(config)
    fresh.workflow.load_state_dict(run.workflow.state_dict())
    assert fresh.workflow.hyper_parameters()["learning_rate"] == adapted
    assert float(ppo_of(fresh).optimizer.param_groups[0]["lr"]) == pytest.approx(adapted)


# ---- schedules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [Part("adamw"), Part("torch.optim.RMSprop")], ids=["fused", "import path"])
@pytest.mark.parametrize(("steps", "left"), [(0, 1.0), (500, 0.5), (1_000, 0.0)])
def test_schedules_reach_the_optimiser_and_the_log(steps: int, left: float, part: Part) -> None:
    workflow = uniform(
        learning_rate=Schedule(1e-3, 0.0),
        critic_learning_rate=Schedule(2e-3, 1e-3),
        clip_range=Schedule(0.2, 0.0),
        value_coef=Schedule(0.5, 1.5),
        entropy_coef=Schedule(0.01, 0.0),
        optimizer=part,
    )
    workflow.set_schedules(Phase("train", env_steps=steps, total_steps=1_000))
    metrics(workflow)
    hyper = workflow.hyper_parameters()
    expected = {
        "learning_rate": 1e-3 * left,
        "critic_learning_rate": 1e-3 + 1e-3 * left,
        "clip_range": 0.2 * left,
        "value_coef": 1.5 - left,
        "entropy_coef": 0.01 * left,
    }
    assert hyper == pytest.approx(expected, rel=1e-6)
    rates = {group["name"]: float(group["lr"]) for group in workflow.optimizer.param_groups}
    assert rates == {"actor": hyper["learning_rate"], "critic": hyper["critic_learning_rate"]}


def test_actor_and_critic_share_a_rate_unless_told_otherwise() -> None:
    workflow = uniform(learning_rate=Schedule(1e-3, 0.0))
    workflow.set_schedules(Phase("train", env_steps=250, total_steps=1_000))
    assert [float(group["lr"]) for group in workflow.optimizer.param_groups] == pytest.approx([7.5e-4, 7.5e-4])
    assert "critic_learning_rate" not in workflow.hyper_parameters()


# ---- settings that can't work ---------------------------------------------------------------------------------------


def test_settings_that_do_not_fit_together_are_named() -> None:
    config = ppo_config(num_envs=4)
    fine = config.algorithm
    assert list(fine.problems(config)) == []
    (problem,) = replace(fine, batch_size=48).problems(config)
    assert problem == ("algorithm.batch_size=48: 48 does not divide the rollout (4 environments × 16 steps = 64); 32 does")
    (problem,) = replace(fine, batch_size=0.001).problems(config)
    assert "advantages can't be normalised over one transition" in problem
    assert list(replace(fine, batch_size=0.001, normalize_advantages="off").problems(config)) == []
    assert replace(fine, batch_size=0.25).minibatch_size(4) == 16
    assert list(replace(fine, batch_size=1.0).problems(config)) == []


def test_a_clip_range_of_zero_is_refused_by_the_config() -> None:
    from etude.config.validate import Validator

    with pytest.raises(ConfigError, match=r"algorithm.clip_range=0: must be above 0"):
        Validator().build(type(ppo_config().algorithm), {"clip_range": 0}, "algorithm")

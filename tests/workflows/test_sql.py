"""Soft Q-learning: its value, its losses, a sampler with two modes, and that it is the same run however it is cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.critics import with_action, with_part
from etude.components.stein import squash_correction, stein_direction
from etude.compute.noise import Noise
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.workflows.sql import SQL, soft_value
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, batch_of, normal, start

TINY = (
    *("network.sampler.hidden_dims=[16]", "network.critic.hidden_dims=[16]", "algorithm.batch_size=16"),
    *("algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0"),
    *("algorithm.value_particles=6", "algorithm.kernel_particles=8"),
)


def build(*words: str, spec: str = "Pendulum-v1:sql") -> Orchestrator:
    return start(spec, (*TINY, *words))


def filled(*words: str) -> tuple[Any, dict[str, Any]]:
    return batch_of(build(*words))


@pytest.mark.parametrize("actions", [1, 2])
def test_the_value_of_a_quadratic_is_its_closed_form(actions: int) -> None:
    """log ∫ exp(−a²/2) over [-1, 1] is log(√2π erf(1/√2)) a dimension."""
    particles = torch.rand(4096, actions, generator=torch.Generator().manual_seed(2)) * 2 - 1
    expected = actions * math.log(math.sqrt(2 * math.pi) * math.erf(math.sqrt(0.5)))
    assert soft_value(-0.5 * particles.square().sum(-1), actions).item() == pytest.approx(expected, abs=1e-2)
    assert soft_value(torch.full((3, 5), 7.0), actions).tolist() == pytest.approx([7 + actions * math.log(2)] * 3)


def test_targets_are_by_the_book() -> None:
    w, batch = filled("algorithm.reward_scale=3")
    particles = normal(6, 1).tanh()
    with torch.no_grad():
        y = []
        for row in range(16):
            here = batch["next_observation"][row : row + 1].expand(6, -1)
            q = w.target_critic(with_action(here, particles)).squeeze(-1).amin(0)
            value = torch.logsumexp(q, 0) - math.log(6) + math.log(2)
            y.append(3 * batch["reward"][row] + 0.99 * (~batch["terminated"][row]) * value)
        values = w.critic(with_action(batch["observation"], batch["sample"])).squeeze(-1)
        expected = 0.5 * sum(((value - torch.stack(y)) ** 2).mean() for value in values)
    out = w.critic_loss(batch, Noise(drawn={"particles": particles}))
    torch.testing.assert_close(out.loss.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ratio", [0.5, 0.25])
def test_the_sampler_moves_along_stein_s_direction(ratio: float) -> None:
    """The loss changes the sampler as if each moved action were pushed by its direction."""
    w, batch = filled(f"algorithm.kernel_update_ratio={ratio}")
    moved, noise = int(8 * ratio), normal(16, 8, 1)
    observation = batch["observation"].repeat_interleave(8, 0)
    actions = w.sampler(with_part(observation, "noise", noise.reshape(-1, 1))).tanh().view(16, 8, 1)
    fixed = actions[:, : 8 - moved].detach().requires_grad_()
    rows = batch["observation"].repeat_interleave(8 - moved, 0)
    q = w.critic(with_action(rows, fixed.reshape(-1, 1))).squeeze(-1).amin(0)
    (score,) = torch.autograd.grad((q + squash_correction(fixed.reshape(-1, 1))).sum(), fixed)
    direction = stein_direction(fixed.detach(), actions[:, 8 - moved :].detach(), score)
    parameters = list(w.sampler.parameters())
    expected = torch.autograd.grad(actions[:, 8 - moved :], parameters, -direction / (16 * moved))
    found = torch.autograd.grad(w.sampler_loss(batch, Noise(drawn={"sampler": noise}))[0], parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


class TwoHills(torch.nn.Module):
    """A critic of one action that likes −0.5 and 0.5 alike, by and by: as critics are learnt, they are flat at first."""

    height = 0.0

    def forward(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        hills = torch.stack([-((observation["action"] - hill) ** 2) / (2 * 0.1**2) for hill in (-0.5, 0.5)])
        return self.height * hills.logsumexp(0)[None]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sampler_has_two_modes_where_the_critic_has(seed: int) -> None:
    words = ("network.sampler.hidden_dims=[32,32]", "algorithm.kernel_particles=32", f"experiment.seed={seed}")
    w: Any = build(*words).workflow
    assert isinstance(w, SQL)
    w.critic = hills = TwoHills()
    optimizer = torch.optim.Adam(w.sampler.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(seed)
    batch = {"observation": torch.randn(8, 3, generator=generator), "reward": torch.zeros(8)}
    for step in range(400):
        hills.height = min(1.0, step / 250)
        optimizer.zero_grad()
        w.sampler_loss(batch, Noise(generator))[0].backward()
        optimizer.step()
    observation, first = torch.zeros(2000, 3), torch.ones(2000, dtype=torch.bool)
    action = w.policy().act(observation, None, first, mode="sample", generator=generator).extras["sample"]
    for hill in (-0.5, 0.5):
        assert ((action - hill).abs() < 0.3).float().mean() >= 0.3
    assert (action.abs() < 0.2).float().mean() < 0.15


def test_what_is_sampled_and_what_is_the_mode() -> None:
    policy = build().workflow.policy()
    observation, first = torch.zeros(50, 3), torch.ones(50, dtype=torch.bool)
    generator = torch.Generator().manual_seed(1)
    acted = {m: policy.act(observation, None, first, mode=m, generator=generator).action for m in ("sample", "greedy")}
    assert acted["greedy"].unique().numel() == 1
    assert acted["sample"].unique().numel() == 50
    assert acted["sample"].abs().max() <= 2


@pytest.mark.parametrize("every", [1, 5])
def test_targets_are_copied_once_in_so_many_updates(every: int) -> None:
    orchestrator = build(f"algorithm.target_every={every}", "algorithm.tau=1")
    w: Any = orchestrator.workflow
    while orchestrator.counters.updates < 12:
        before = orchestrator.counters.updates
        orchestrator._run_cycle()
        if orchestrator.counters.updates > before:
            pairs = zip(w.critic.parameters(), w.target_critic.parameters(), strict=True)
            assert all(torch.equal(one, other) for one, other in pairs) == (orchestrator.counters.updates % every == 0)


@pytest.mark.slow  # of every algorithm, test_conformance.py stops and resumes one run in every suite
def test_a_stopped_run_is_the_run_that_was_not(tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=100", "evaluation.episodes=1")
    whole = train("Pendulum-v1:sql", tmp_path / "whole", *words)
    with stopped_after(57):
        parted = train("Pendulum-v1:sql", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.slow  # it compiles; DQN does in every suite
@pytest.mark.slow
def test_a_compiled_update_equals_an_eager_one() -> None:
    assert_compiled_equals_eager("Pendulum-v1:sql", TINY, ("sampler", "critic", "target_critic"))


def test_what_it_can_not_do_is_said() -> None:
    with pytest.raises(UserError, match="sql acts in Box spaces, not Discrete"):
        build(spec="CartPole-v1:sql")
    with pytest.raises(UserError, match="at least 1 must move and 2 stay"):
        build("algorithm.kernel_update_ratio=1")

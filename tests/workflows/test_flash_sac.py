"""FlashSAC: its losses by slow loops, weights that stay where they are put, held noise, and one run however it is cut."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from etude.components.critics import with_action
from etude.components.networks.residual_mlp import ResidualMLP, ResidualMLPConfig
from etude.components.return_bound import ReturnBound
from etude.compute.noise import Noise
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from tests.capture_double import pretend_capture
from tests.runs_compared import assert_resumes
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, batch_of, normal, start

TINY = (
    *("network.actor={width: 8, blocks: 1, expansion: 2}", "network.critic={width: 8, blocks: 1, expansion: 2}"),
    *("algorithm.batch_size=16", "algorithm.learning_starts=40", "environment.num_envs=2", "training.total_steps=160"),
    *("evaluation.every_steps=0", "algorithm.atoms=11"),
)
CROSSQ = (
    *("algorithm.atoms=1", "algorithm.target_network=false", "algorithm.actor_every=3", "algorithm.hold_noise=1"),
    *("network.actor={type: batch_normed_mlp, hidden_dims: [8]}", "network.critic={type: batch_normed_mlp, hidden_dims: [8]}"),
)


def build(*words: str) -> Orchestrator:
    return start("Pendulum-v1:flash_sac", (*TINY, *words))


def cross_entropy(outputs: np.ndarray, target: np.ndarray, reward: float, discount: float, reach: float) -> float:
    """Share each atom of the target between its neighbours, one after the other."""
    atoms, size = np.linspace(-reach, reach, len(outputs)), len(outputs)
    gap = atoms[1] - atoms[0]
    shares = np.zeros(size)
    for atom, probability in zip(atoms, target, strict=True):
        place = (min(max(reward + discount * atom, -reach), reach) + reach) / gap
        low = min(math.floor(place), size - 2)
        shares[low] += probability * (1 - (place - low))
        shares[low + 1] += probability * (place - low)
    log_probs = outputs - outputs.max() - math.log(np.exp(outputs - outputs.max()).sum())
    return float(-(shares * log_probs).sum())


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


@pytest.mark.parametrize("words", [(), CROSSQ], ids=["distributions", "means without targets"])
def test_the_critics_loss_is_the_slow_loop_over_one_joint_batch(words: tuple[str, ...]) -> None:
    workflow, batch = batch_of(build(*words))
    workflow.bound.divisor.fill_(4.0)
    noise = normal(2, 16, 1)
    for network in (workflow.critic, workflow.target_critic):
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.momentum = 0.0  # so that looking twice sees the same
    workflow.actor.eval()
    policy = workflow.head(workflow.actor(batch["next_observation"]))
    workflow.actor.train()
    action, log_prob = (part.detach() for part in policy.draw(noise[1]))
    here, there = with_action(batch["observation"], batch["sample"]), with_action(batch["next_observation"], action)
    both = {name: torch.cat([here[name], there[name]]) for name in here}
    said = workflow.critic_loss(batch, Noise(drawn={"policy": noise}))

    with torch.no_grad():
        outputs = workflow.critic(both)[:, :16].double().numpy()
        judge = workflow.target_critic if workflow.settings.target_network else workflow.critic
        following = judge(both)[:, 16:].double().numpy()
    alpha, expected = float(workflow.temperature().detach()), 0.0
    atoms = np.linspace(-5, 5, outputs.shape[-1])
    for row in range(16):
        reward = float(batch["reward"][row]) / 4 - float(batch["discount"][row]) * alpha * float(log_prob[row])
        discount = float(batch["discount"][row])
        if outputs.shape[-1] == 1:
            target = reward + discount * min(following[k, row, 0] for k in range(2))
            expected += sum(0.5 * (outputs[k, row, 0] - target) ** 2 for k in range(2)) / 16
            continue
        means = [(softmax(following[k, row]) * atoms).sum() for k in range(2)]
        lower = softmax(following[int(np.argmin(means)), row])
        expected += sum(cross_entropy(outputs[k, row], lower, reward, discount, 5.0) for k in range(2)) / 16
    assert float(said.loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_the_actor_climbs_the_lower_critic_as_it_acts_and_learns_on_both_observations() -> None:
    workflow, batch = batch_of(build())
    noise = normal(2, 16, 1)
    before = {name: value.clone() for name, value in workflow.critic.state_dict().items()}
    outputs = workflow.actor(torch.cat([batch["observation"], batch["next_observation"]]))[:16]
    action, log_prob = workflow.head(outputs).draw(noise[0])
    workflow.critic.eval()
    probabilities = workflow.critic(with_action(batch["observation"], action)).softmax(-1)
    workflow.critic.train()
    value = (probabilities * torch.linspace(-5, 5, 11)).sum(-1).amin(0)
    expected = (workflow.temperature() * log_prob - value).mean()
    loss, metrics = workflow.actor_loss(batch, Noise(drawn={"policy": noise}))
    assert float((loss - metrics["train/temperature_loss"]).detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert all(torch.equal(value, workflow.critic.state_dict()[name]) for name, value in before.items())
    assert workflow.critic.training


def test_the_temperatures_gradient_falls_with_it() -> None:
    temperature = build().workflow.temperature
    entropy, kept = torch.tensor([0.5, 1.5]), 0.25
    temperature.keep(kept)
    for alpha in (0.5, 0.01):
        with torch.no_grad():
            temperature.log_alpha.fill_(math.log(alpha))
        temperature.zero_grad()
        temperature.loss(entropy, None).backward()
        assert float(temperature.log_alpha.grad) == pytest.approx(alpha * (1.0 - kept), rel=1e-5)


def test_the_actor_learns_before_the_critics_whose_targets_ask_it() -> None:
    assert [stage.name for stage in build().workflow.losses().stages] == ["actor", "critic"]


def test_weights_stay_at_length_1_and_scales_at_theirs() -> None:
    run = build()
    while run.counters.updates < 10:
        run._run_cycle()
    workflow: Any = run.workflow
    rows = 0
    for network in (workflow.actor, workflow.critic):
        network.requires_grad_(False)
        for name, module in network.named_modules():
            if isinstance(module, nn.BatchNorm1d):
                several = getattr(module, "several", (1, module.num_features))
                both = torch.cat([module.weight.view(several), module.bias.view(several)], 1).norm(dim=1)
                torch.testing.assert_close(both, torch.full((several[0],), math.sqrt(several[1])), msg=name)
                assert float(module.bias.abs().max()) > 0
            elif isinstance(module, nn.RMSNorm):
                assert float(module.weight.norm()) == pytest.approx(math.sqrt(module.weight.numel()), rel=1e-5)
            elif hasattr(module, "weight"):
                torch.testing.assert_close(module.weight.norm(dim=-1), torch.ones(module.weight.shape[:-1]), msg=name)
                rows += module.weight[..., 0].numel()
            elif hasattr(module, "scale"):
                lengths = torch.full((2,), math.sqrt(module.scale.shape[1]))
                torch.testing.assert_close(module.scale.flatten(1).norm(dim=1), lengths, msg=name)
    assert rows > 50


def test_returns_are_bounded_as_a_slow_loop_has_it() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, ended = 3 * torch.randn(60, 2, generator=generator) - 1, torch.rand(60, 2, generator=generator) < 0.1
    bound = ReturnBound(2, 0.9, 5.0)
    for begin in range(0, 60, 7):
        bound.update(rewards[begin : begin + 7], ended[begin : begin + 7])
    seen = []
    for copy in range(2):
        total = 0.0
        for reward, end in zip(rewards[:, copy].tolist(), ended[:, copy].tolist(), strict=True):
            total = 0.9 * total + reward
            seen.append(total)
            total = 0.0 if end else total
    expected = max(float(np.std(seen)), max(map(abs, seen)) / 5)
    assert float(bound.divisor) == pytest.approx(expected, rel=1e-6)


def test_what_was_collected_is_what_rewards_are_divided_by() -> None:
    run = build()
    while run.counters.env_steps < 60:
        run._run_cycle()
    workflow: Any = run.workflow
    store = run.buffers["replay"].store
    slow = ReturnBound(2, workflow.settings.gamma, 5.0)
    slow.update(store.columns["reward"][:30], (store.columns["terminated"] | store.columns["truncated"])[:30])
    assert float(workflow.bound.divisor) == pytest.approx(float(slow.divisor), rel=1e-5)
    assert float(workflow.bound.divisor) > 1


def test_noise_is_held_for_n_steps_by_the_inverse_square_of_n() -> None:
    workflow: Any = build().workflow
    generator = torch.Generator().manual_seed(0)
    count = 400
    state, first = workflow.initial_state(count), torch.ones(count, dtype=torch.bool)
    observation, kept = torch.zeros(count, 3), []
    for _ in range(100):
        before = state["noise"]
        result = workflow.act(observation, state, first, mode="explore", generator=generator)
        state, first = result.state, torch.zeros(count, dtype=torch.bool)
        kept.append((state["noise"] == before).all(1))
    lengths, held = [], torch.stack(kept).T.tolist()
    for row in held:
        begun = [place for place, is_kept in enumerate(row) if not is_kept]
        lengths += [end - begin for begin, end in pairwise(begun)]
    assert max(lengths) <= 16
    weights = [1 / n**2 for n in range(1, 17)]
    for n in (1, 2, 3):
        share = sum(length == n for length in lengths) / len(lengths)
        assert share == pytest.approx(weights[n - 1] / sum(weights), abs=0.03)
    again = workflow.act(observation, state, torch.ones(count, dtype=torch.bool), mode="explore", generator=generator)
    assert not (again.state["noise"] == state["noise"]).all(1).any()  # nothing is held over the end of an episode


@pytest.mark.parametrize("norm", ["batch", "layer", "sphere"])
def test_a_network_is_its_formula(norm: Any) -> None:
    config = ResidualMLPConfig(width=6, blocks=1, expansion=2, norm=norm)
    space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    network = ResidualMLP(config, space, 2, generator=torch.Generator().manual_seed(1))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(2))
    first, head = next(p for p in network.layers if isinstance(p, nn.Linear)), network.layers[-1]
    block = next(p for p in network.layers if hasattr(p, "back"))

    def standard(v: torch.Tensor, dim: int) -> torch.Tensor:
        return (v - v.mean(dim, keepdim=True)) / (v.var(dim, unbiased=False, keepdim=True) + 1e-5).sqrt()

    def unit(v: torch.Tensor) -> torch.Tensor:
        return v / v.norm(dim=-1, keepdim=True)

    if norm == "batch":
        h = standard(x, 0) @ first.weight.T
        h = h + standard(standard(h @ block.out.weight.T, 0).relu() @ block.back.weight.T, 0).relu()
        h = h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    elif norm == "layer":
        h = x @ first.weight.T
        h = standard(h + (standard(h, -1) @ block.out.weight.T).relu() @ block.back.weight.T, -1)
    else:
        h = unit(unit(torch.cat([x, torch.full((5, 1), 3.0)], 1)) @ first.weight.T)
        h = unit(h + 0.5 * (unit((h @ block.out.weight.T).relu() @ block.back.weight.T) - h))
    torch.testing.assert_close(network(x), h @ head.weight.T + head.bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", [(), CROSSQ], ids=["flash", "crossq"])
def test_a_stopped_run_goes_on_to_the_same_bits(words: tuple[str, ...], tmp_path: Path) -> None:
    assert_resumes("Pendulum-v1:flash_sac", tmp_path, *TINY, *words, "experiment.device=cpu", after=40)


@pytest.mark.parametrize("words", [(), CROSSQ], ids=["flash", "crossq"])
def test_a_captured_run_is_the_eager_run(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []

    def touched() -> list[torch.Tensor]:
        return [*runs[-1].workflow._executor.touched(), *runs[-1].workflow.bound.buffers()]

    for mode in ("eager", "captured"):
        graphs = pretend_capture(monkeypatch, touched) if mode == "captured" else []
        monkeypatch.setattr(assembly, "execution_mode", lambda config, mode=mode: mode)
        runs.append(build(*words))
        while runs[-1].counters.updates < 14:
            runs[-1]._run_cycle()
        assert bool(graphs) == (mode == "captured")
        assert all(graph.replays for graph in graphs)
    for mine, theirs in zip(*(pytree.tree_leaves(run.workflow.state_dict()) for run in runs), strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), CROSSQ], ids=["flash", "crossq"])
def test_a_compiled_run_is_the_eager_run(words: tuple[str, ...]) -> None:
    assert_compiled_equals_eager("Pendulum-v1:flash_sac", (*TINY, *words), ("actor", "critic", "target_critic"), updates=4)


def test_what_it_can_not_do_is_refused() -> None:
    with pytest.raises(UserError, match="flash_sac acts in Box spaces, not Discrete"):
        start("CartPole-v1:flash_sac", TINY)
    with pytest.raises(UserError, match=r"algorithm.batch_size=1: batches are normalised"):
        build("algorithm.batch_size=1")

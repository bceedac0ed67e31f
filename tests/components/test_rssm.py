"""The recurrent state-space model: a sequence is its steps, episodes begin from nothing, and dreams go on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from etude.components.latents import Categorical, Gaussian, Latents
from etude.components.networks.normed_layers import BlockLinear
from etude.components.rssm import RSSM, ModelState

KINDS: list[Latents] = [Categorical(3, 4), Gaussian(5)]
T, B, A, HIDDEN = 5, 3, 2, 8


def model(latents: Latents) -> RSSM:
    return RSSM(latents, A, deter=16, hidden=HIDDEN, generator=torch.Generator().manual_seed(1))


def normal(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def noise_for(latents: Latents, *leading: int) -> Tensor:
    shape, generator = (*leading, latents.noise_size), torch.Generator().manual_seed(3)
    return torch.rand(shape, generator=generator) if latents.noise == "uniform" else torch.randn(shape, generator=generator)


def begun(rssm: RSSM) -> ModelState:
    return ModelState(normal(B, rssm.deter_size, seed=4), normal(B, rssm.latents.size, seed=5))


@pytest.mark.parametrize("latents", KINDS, ids=["categorical", "gaussian"])
def test_a_sequence_is_its_steps(latents: Latents) -> None:
    rssm, actions, tokens, noise = model(latents), normal(T, B, A), normal(T, B, HIDDEN), noise_for(latents, T, B)
    is_first = torch.tensor([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]).bool()
    states, outputs = rssm.observe(begun(rssm), actions, tokens, is_first, noise)
    state = begun(rssm)
    for t in range(T):
        state, output = rssm.step(state, actions[t], tokens[t], is_first[t], noise[t])
        torch.testing.assert_close(states.deter[t], state.deter)
        torch.testing.assert_close(states.stoch[t], state.stoch)
        torch.testing.assert_close(outputs[t], output)


@pytest.mark.parametrize("latents", KINDS, ids=["categorical", "gaussian"])
def test_an_episode_begins_without_state_and_without_the_action_before(latents: Latents) -> None:
    rssm, tokens, noise = model(latents), normal(B, HIDDEN), noise_for(latents, B)
    first = torch.ones(B, dtype=torch.bool)
    fresh, _ = rssm.step(rssm.initial(B), torch.zeros(B, A), tokens, first, noise)
    used, _ = rssm.step(begun(rssm), normal(B, A), tokens, first, noise)
    torch.testing.assert_close(used, fresh)
    other, _ = rssm.step(rssm.initial(B), normal(B, A), tokens, ~first, noise)
    assert not torch.equal(other.deter, fresh.deter), "elsewhere the action before counts"


def test_a_dream_goes_on_from_state_to_state() -> None:
    rssm, horizon = model(KINDS[0]), 4
    policy_noise, noise = normal(horizon, B, A), noise_for(KINDS[0], horizon, B)

    def policy(features: Tensor, noise: Tensor) -> Tensor:
        return torch.tanh(features[:, :A] + noise)

    states, actions = rssm.imagine(policy, begun(rssm), policy_noise, noise)
    state = begun(rssm)
    for k in range(horizon):
        torch.testing.assert_close(states.deter[k], state.deter)
        chosen = policy(state.features, policy_noise[k])  # in the state before the step
        torch.testing.assert_close(actions[k], chosen)
        state = rssm.dream(state, chosen, noise[k])
        assert not torch.equal(state.deter, states.deter[k])
    torch.testing.assert_close(states.deter[horizon], state.deter)


@pytest.mark.parametrize("latents", KINDS, ids=["categorical", "gaussian"])
def test_gradients_flow_through_a_dream_to_its_actions(latents: Latents) -> None:
    rssm, push = model(latents), torch.zeros(A, requires_grad=True)
    noise = noise_for(latents, 3, B)
    states, _ = rssm.imagine(lambda features, _: torch.tanh(push).expand(B, A), begun(rssm), noise, noise)
    (gradient,) = torch.autograd.grad(states.deter[-1].sum(), [push])
    assert bool((gradient != 0).all())


def test_gradients_of_a_sequence_reach_its_first_state() -> None:
    rssm, start = model(KINDS[0]), begun(model(KINDS[0]))
    deter = start.deter.clone().requires_grad_()
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[2, 0] = True  # the first episode ends amid the window
    states, _ = rssm.observe(
        ModelState(deter, start.stoch), normal(T, B, A), normal(T, B, HIDDEN), is_first, noise_for(KINDS[0], T, B)
    )
    (gradient,) = torch.autograd.grad(states.deter[-1].square().sum(), [deter])
    assert gradient[0].abs().sum() == 0
    assert bool((gradient[1:].abs().sum(-1) > 0).all())


def test_no_action_pushes_further_than_its_bound() -> None:
    rssm = model(KINDS[0])
    torch.testing.assert_close(rssm.action_layer(torch.tensor([[3.0, -7.0]])), rssm.action_layer(torch.tensor([[1.0, -1.0]])))


def test_blocks_begin_with_the_fan_in_of_the_whole_layer() -> None:
    layer = BlockLinear(512, 256, 8, torch.Generator().manual_seed(1))
    assert layer.weight.shape == (8, 64, 32)
    assert layer.weight.std().item() == pytest.approx(1 / math.sqrt(512), rel=0.05)


def test_blocks_see_their_own_part_alone() -> None:
    layer = BlockLinear(16, 24, 8, torch.Generator().manual_seed(1))
    values = torch.zeros(8, 1, 2)
    values[3] = 1.0
    changed = (layer(values) != layer(torch.zeros(8, 1, 2))).squeeze(1)
    assert bool(changed[3].all())
    assert not changed[torch.arange(8) != 3].any()

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from etude.components.returns import (
    discounted_returns,
    episode_returns,
    generalized_advantages,
    in_whole_episodes,
    lambda_returns,
    n_step_returns,
    reward_to_go,
    v_trace,
)

GAMMA, LAMBDA = 0.97, 0.9
Rollout = dict[str, Tensor]


def rollout(seed: int, dtype: torch.dtype = torch.float64) -> Rollout:
    """Random rewards and values, with episodes that end in every way, back to back ends among them."""
    generator = torch.Generator().manual_seed(seed)
    T, N = (int(torch.randint(1, high, (), generator=generator)) for high in (13, 5))

    def normal() -> Tensor:
        return torch.randn(T, N, generator=generator, dtype=torch.float64).to(dtype)

    terminated = torch.rand(T, N, generator=generator) < 0.2
    ended = terminated | (torch.rand(T, N, generator=generator) < 0.2)
    names = ("rewards", "values", "next_values", "log_ratios")
    return {**{name: normal() for name in names}, "terminated": terminated, "ended": ended}


def slow_advantages(r: Rollout, t: int, n: int) -> float:
    """δ[t] + γλ δ[t+1] + ... up to and including the step that ends the episode."""
    total, weight = 0.0, 1.0
    for k in range(t, len(r["rewards"])):
        following = 0.0 if r["terminated"][k, n] else float(r["next_values"][k, n])
        total += weight * (float(r["rewards"][k, n]) + GAMMA * following - float(r["values"][k, n]))
        if r["ended"][k, n]:
            break
        weight *= GAMMA * LAMBDA
    return total


def slow_n_step(r: Rollout, t: int, n: int, steps: int) -> float:
    total, discount = 0.0, 1.0
    for k in range(t, len(r["rewards"])):
        total += discount * float(r["rewards"][k, n])
        discount *= GAMMA
        if r["terminated"][k, n]:
            return total
        if r["ended"][k, n] or k - t == steps - 1 or k == len(r["rewards"]) - 1:
            return total + discount * float(r["next_values"][k, n])
    raise AssertionError("a stretch ends somewhere")


def slow_lambda(r: Rollout, t: int, n: int) -> float:
    """The definition: (1-λ) Σ λ^(k-1) G^(k), the last one with all the weight that is left."""
    total, weight, k = 0.0, 1.0, 1
    while True:
        last = bool(r["ended"][t + k - 1, n]) or t + k == len(r["rewards"])
        share = weight if last else weight * (1 - LAMBDA)
        total += share * slow_n_step(r, t, n, k)
        if last:
            return total
        weight *= LAMBDA
        k += 1


def slow_monte_carlo(r: Rollout, t: int, n: int) -> float:
    return slow_n_step(r, t, n, steps=10**6)


def slow_to_go(r: Rollout, t: int, n: int) -> float:
    total, discount = 0.0, 1.0
    for k in range(t, len(r["rewards"])):
        total += discount * float(r["rewards"][k, n])
        discount *= GAMMA
        if r["ended"][k, n]:
            break
    return total


def slow_episode(r: Rollout, t: int, n: int) -> float:
    while t > 0 and not r["ended"][t - 1, n]:
        t -= 1
    return slow_to_go(r, t, n)


def slow_v_trace(r: Rollout, t: int, n: int) -> float:
    """V + Σ γ^k (c[t] ... c[t+k-1]) δ[t+k], to the end of the episode."""
    total, weight = float(r["values"][t, n]), 1.0
    for k in range(t, len(r["rewards"])):
        ratio = math.exp(float(r["log_ratios"][k, n]))
        following = 0.0 if r["terminated"][k, n] else float(r["next_values"][k, n])
        delta = float(r["rewards"][k, n]) + GAMMA * following - float(r["values"][k, n])
        total += weight * min(1.2, ratio) * delta
        if r["ended"][k, n]:
            break
        weight *= GAMMA * min(0.9, ratio)
    return total


def slow_v_trace_advantage(r: Rollout, t: int, n: int) -> float:
    following = 0.0 if r["terminated"][t, n] else float(r["next_values"][t, n])
    if not r["ended"][t, n] and t + 1 < len(r["rewards"]):
        following = slow_v_trace(r, t + 1, n)
    rho = min(1.2, math.exp(float(r["log_ratios"][t, n])))
    return rho * (float(r["rewards"][t, n]) + GAMMA * following - float(r["values"][t, n]))


def fast_v_trace(r: Rollout, part: int) -> Tensor:
    values = r["rewards"], r["values"], r["next_values"], r["terminated"], r["ended"], r["log_ratios"]
    return v_trace(*values, GAMMA, clip_rho=1.2, clip_c=0.9)[part]


def targets(r: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return r["rewards"], r["next_values"], r["terminated"], r["ended"]


def fast_advantages(r: Rollout) -> Tensor:
    return generalized_advantages(r["rewards"], r["values"], r["next_values"], r["terminated"], r["ended"], GAMMA, LAMBDA)


PAIRS: dict[str, tuple[Callable[[Rollout], Tensor], Callable[[Rollout, int, int], float]]] = {
    "gae": (fast_advantages, slow_advantages),
    "lambda": (lambda r: lambda_returns(*targets(r), GAMMA, LAMBDA), slow_lambda),
    "monte carlo": (lambda r: discounted_returns(*targets(r), GAMMA), slow_monte_carlo),
    "1-step": (lambda r: n_step_returns(*targets(r), GAMMA, 1), lambda r, t, n: slow_n_step(r, t, n, 1)),
    "3-step": (lambda r: n_step_returns(*targets(r), GAMMA, 3), lambda r, t, n: slow_n_step(r, t, n, 3)),
    "reward to go": (lambda r: reward_to_go(r["rewards"], r["ended"], GAMMA), slow_to_go),
    "episode": (lambda r: episode_returns(r["rewards"], r["ended"], GAMMA), slow_episode),
    "v-trace": (lambda r: fast_v_trace(r, 0), slow_v_trace),
    "v-trace advantage": (lambda r: fast_v_trace(r, 1), slow_v_trace_advantage),
    "50-step": (lambda r: n_step_returns(*targets(r), GAMMA, 50), lambda r, t, n: slow_n_step(r, t, n, 50)),
}


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_equals_a_slow_loop_on_random_rollouts(name: str, seed: int) -> None:
    fast, slow = PAIRS[name]
    r = rollout(seed)
    T, N = r["rewards"].shape
    expected = torch.tensor([[slow(r, t, n) for n in range(N)] for t in range(T)], dtype=torch.float64)
    got = fast(r)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", PAIRS)
def test_single_precision_stays_single(name: str) -> None:
    r = rollout(7, torch.float32)
    got = PAIRS[name][0](r)
    assert got.dtype == torch.float32
    exact = PAIRS[name][0]({key: value.double() if value.is_floating_point() else value for key, value in r.items()})
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_crosses_the_end_of_an_episode(name: str) -> None:
    for seed in range(30):
        r = rollout(seed)
        before = PAIRS[name][0](r)
        changed = {key: value.clone() for key, value in r.items()}
        # Everything after each environment's first end is replaced; what came before must not notice.
        later = r["ended"].cumsum(0) - r["ended"].int() > 0
        for key in ("rewards", "values", "next_values", "log_ratios"):
            changed[key][later] += 100.0
        after = PAIRS[name][0](changed)
        assert torch.equal(after[~later], before[~later])


@pytest.mark.parametrize("name", PAIRS)
def test_the_value_after_a_termination_does_not_count_even_if_it_is_not_a_number(name: str) -> None:
    r = rollout(3)
    r["terminated"][0] = r["ended"][0] = True
    before = PAIRS[name][0](r)
    r["next_values"][r["terminated"]] = torch.nan
    assert torch.equal(PAIRS[name][0](r), before)


def test_a_time_limit_is_bootstrapped_and_a_termination_is_not() -> None:
    one = torch.ones(1, 2, dtype=torch.float64)
    terminated, ended = torch.tensor([[True, False]]), torch.tensor([[True, True]])
    got = n_step_returns(one, 10 * one, terminated, ended, GAMMA, 5)
    assert got.tolist() == [[1.0, 1.0 + GAMMA * 10]]
    assert generalized_advantages(one, one, 10 * one, terminated, ended, GAMMA, LAMBDA).tolist() == [[0.0, GAMMA * 10]]


def test_gae_and_lambda_returns_are_two_views_of_one_thing() -> None:
    for seed in range(20):
        r = rollout(seed)
        # True when V(next) really is the next row's value wherever the episode goes on.
        following = torch.cat([r["values"][1:], r["next_values"][-1:]])
        r["next_values"] = torch.where(r["ended"], r["next_values"], following)
        returns = lambda_returns(*targets(r), GAMMA, LAMBDA)
        torch.testing.assert_close(fast_advantages(r) + r["values"], returns, rtol=1e-12, atol=1e-12)


def test_monte_carlo_returns_by_hand() -> None:
    rewards, ended = torch.ones(3, 1), torch.tensor([[False], [False], [True]])
    assert reward_to_go(rewards, ended, 1.0).flatten().tolist() == [3, 2, 1]
    assert episode_returns(rewards, ended, 1.0).flatten().tolist() == [3, 3, 3]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_step_is_in_a_whole_episode_when_an_end_comes_before_a_cut(seed: int) -> None:
    r = rollout(seed)
    cut = (torch.rand(r["ended"].shape, generator=torch.Generator().manual_seed(seed)) < 0.2) & ~r["ended"]
    T, N = cut.shape
    for n in range(N):
        for t in range(T):
            first_end = next((k for k in range(t, T) if r["ended"][k, n]), T)
            first_cut = next((k for k in range(t, T) if cut[k, n]), T)
            assert bool(in_whole_episodes(r["ended"], cut)[t, n]) == (first_end < first_cut)
            assert bool(in_whole_episodes(r["ended"])[t, n]) == (first_end < T)


def test_v_trace_of_the_same_policy_is_the_monte_carlo_return() -> None:
    for seed in range(20):
        r = rollout(seed)
        following = torch.cat([r["values"][1:], r["next_values"][-1:]])
        r["next_values"] = torch.where(r["ended"], r["next_values"], following)
        values = r["rewards"], r["values"], r["next_values"], r["terminated"], r["ended"]
        got, advantages = v_trace(*values, torch.zeros_like(r["rewards"]), GAMMA)
        expected = discounted_returns(*targets(r), GAMMA)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(advantages, expected - r["values"], rtol=1e-12, atol=1e-12)

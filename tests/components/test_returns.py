from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from etude.components.returns import discounted_returns, generalized_advantages, lambda_returns, n_step_returns

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
    return {"rewards": normal(), "values": normal(), "next_values": normal(), "terminated": terminated, "ended": ended}


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
        for key in ("rewards", "values", "next_values"):
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

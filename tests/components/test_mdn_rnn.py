"""The mixture-density memory: its likelihood by hand, a sequence as its steps, what the temperature does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from etude.components.mdn_rnn import HIDDEN, MDNRNN, Outlook

T, N, Z, A, H, K = 9, 4, 3, 2, 8, 5


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def memory() -> MDNRNN:
    return MDNRNN(Z, A, size=H, mixtures=K, generator=seeded())


def steps(first: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    chance = seeded(2)
    is_first = torch.rand(T, N, generator=chance) < first
    return torch.randn(T, N, Z, generator=chance), torch.randn(T, N, A, generator=chance), is_first


def outlook(*batch: int) -> Outlook:
    return Outlook(*(part.detach() for part in memory().outlook(torch.randn(*batch, H, generator=seeded(3)))))


def test_the_likelihood_is_that_of_a_mixture_for_each_dimension() -> None:
    what, latent = outlook(N), torch.randn(N, Z, generator=seeded(4))
    found = what.nll(latent)
    for n in range(N):
        total = 0.0
        for z in range(Z):
            density = 0.0
            for k in range(K):
                std = math.exp(what.log_stds[n, z, k])
                apart = (float(latent[n, z]) - float(what.means[n, z, k])) / std
                density += math.exp(what.log_weights[n, z, k]) * math.exp(-0.5 * apart**2) / (std * math.sqrt(2 * math.pi))
            total -= math.log(density)
        assert float(found[n]) == pytest.approx(total / Z, rel=1e-5)


def test_a_likelihood_far_away_is_still_a_number() -> None:
    far = outlook(N).nll(torch.full((N, Z), 1e4))
    assert bool(torch.isfinite(far).all())
    assert bool((far > 1e3).all())


def test_a_sequence_is_its_steps_with_resets() -> None:
    made, (latent, action, is_first) = memory(), steps()
    assert bool(is_first[1:].any())
    together, state = made.sequence(latent, action, is_first), made.initial(N)
    for t in range(T):
        state = {name: part * ~is_first[t][:, None] for name, part in state.items()}
        state = made.step(state, latent[t], action[t])
        torch.testing.assert_close(together[t], state[HIDDEN], rtol=1e-5, atol=1e-5)


def test_nothing_of_an_episode_reaches_the_next() -> None:
    made, (latent, action, _) = memory(), steps()
    is_first = torch.zeros(T, N, dtype=torch.bool)
    is_first[5] = True
    other = latent.clone()
    other[:5] += 1
    one, two = (made.sequence(each, action, is_first) for each in (latent, other))
    assert torch.equal(one[5:], two[5:])
    assert not torch.equal(one[:5], two[:5])


def test_what_an_episode_led_to_is_not_in_the_losses_and_its_reward_and_end_are() -> None:
    made, (latent, action, _) = memory(), steps()
    is_first = torch.zeros(T, N, dtype=torch.bool)
    is_first[5] = True
    reward, ends = torch.zeros(T, N), torch.zeros(T, N, dtype=torch.bool)
    made.losses(latent, action, is_first, reward, ends)["nll"].backward()
    hidden = made.sequence(latent, action, is_first)
    before = made.outlook(hidden[:-1])
    each = before.nll(latent[1:])
    known = ~is_first[1:]
    found = made.losses(latent, action, is_first, reward, ends)
    torch.testing.assert_close(found["nll"], each[known].mean())
    ends[4] = True
    assert made.losses(latent, action, is_first, reward, ends)["done"] != found["done"]
    reward[4] = 100.0
    assert made.losses(latent, action, is_first, reward, ends)["reward"] != found["reward"]


def test_draws_follow_the_mixture() -> None:
    many, one = 40_000, outlook()
    what = Outlook(*(part.expand(many, *part.shape) for part in one))
    chance = seeded(5)
    drawn = what.draw(torch.rand(many, Z, generator=chance), torch.randn(many, Z, generator=chance))
    mean = one.mean()
    variance = (one.log_weights.exp() * (one.log_stds.mul(2).exp() + one.means.square())).sum(-1) - mean.square()
    torch.testing.assert_close(drawn.mean(0), mean, atol=0.05, rtol=0.05)
    torch.testing.assert_close(drawn.var(0), variance, atol=0.05, rtol=0.05)


def test_temperature_spreads_both_the_choice_and_each_normal() -> None:
    zeros = torch.zeros(1, 1, 2)
    what = Outlook(torch.tensor([[[0.9, 0.1]]]).log(), torch.tensor([[[0.0, 10.0]]]), zeros, torch.zeros(1, 3), torch.zeros(1))
    uniform, normal = torch.tensor([[0.85]]), torch.tensor([[1.0]])
    assert float(what.draw(uniform, normal)) == pytest.approx(1.0)
    # At 4: 0.9^(1/4) against 0.1^(1/4) is 0.634 to 0.366, and deviations are twice as large.
    assert float(what.draw(uniform, normal, 4.0)) == pytest.approx(12.0)
    assert float(what.draw(torch.tensor([[0.62]]), normal, 4.0)) == pytest.approx(2.0)
    assert float(what.draw(torch.tensor([[0.999]]), normal, 1e-2)) == pytest.approx(0.1)


def test_it_learns_what_comes_next() -> None:
    made, chance = MDNRNN(Z, A, size=32, mixtures=2, generator=seeded()), seeded(6)
    optimizer, losses = torch.optim.Adam(made.parameters(), 2e-2), []
    for _ in range(60):
        action = torch.randn(T, 16, A, generator=chance)
        latent = torch.zeros(T, 16, Z)
        latent[1:] = action[:-1, :, :1]
        is_first = torch.zeros(T, 16, dtype=torch.bool)
        found = made.losses(latent, action, is_first, 5 * action[..., 0].sign(), action[..., 1] > 0)
        optimizer.zero_grad()
        torch.stack([*found.values()]).sum().backward()
        optimizer.step()
        losses.append({name: float(loss.detach()) for name, loss in found.items()})
    assert losses[-1]["nll"] < losses[0]["nll"] - 0.8
    assert losses[-1]["reward"] < 0.5 * losses[0]["reward"]
    assert losses[-1]["done"] < 0.5 * losses[0]["done"]


def test_its_first_weights_depend_on_the_generator_alone() -> None:
    torch.manual_seed(1)
    one = memory()
    torch.manual_seed(2)
    other = memory()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))

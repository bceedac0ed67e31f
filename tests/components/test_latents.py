"""Stochastic states: how they are drawn, stored and compared."""

from __future__ import annotations

import pytest
import torch

from etude.components.latents import Categorical, Gaussian, Latents, Normal, OneHot, balanced_kl


def test_uniform_noise_draws_each_class_as_often_as_it_is_likely() -> None:
    latents = Categorical(1, 4, unimix=0.0)
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4])
    noise = (torch.arange(1000) + 0.5)[:, None] / 1000
    samples = latents.distribution(probs.log().expand(1000, 4)).draw(noise)
    torch.testing.assert_close(samples.mean(0), probs, atol=2e-3, rtol=0)
    assert bool((samples.sum(-1) == 1).all())


def test_noise_at_its_upper_end_still_draws_a_class() -> None:
    samples = OneHot(torch.zeros(1, 1, 7)).draw(torch.tensor([[1 - 2**-24]]))
    assert samples.tolist() == [[0, 0, 0, 0, 0, 0, 1]]


def test_unimix_keeps_every_class_possible() -> None:
    found = Categorical(1, 4, unimix=0.01).distribution(torch.tensor([[100.0, 0, 0, 0]]))
    torch.testing.assert_close(found.probs[0, 0], torch.tensor([0.9925, 0.0025, 0.0025, 0.0025]))


def test_gradients_of_a_sample_are_those_of_the_probabilities() -> None:
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
    latents, weights = Categorical(2, 3), torch.arange(6.0)
    sample = latents.distribution(logits).draw(torch.rand(2, 2, generator=torch.Generator().manual_seed(2)))
    assert set(sample.detach().flatten().tolist()) <= {0.0, 1.0}
    (through_sample,) = torch.autograd.grad((sample * weights).sum(), [logits])
    (of_probs,) = torch.autograd.grad((latents.distribution(logits).probs.flatten(-2) * weights).sum(), [logits])
    torch.testing.assert_close(through_sample, of_probs)


@pytest.mark.parametrize("latents", [Categorical(3, 5), Gaussian(4)], ids=["categorical", "gaussian"])
def test_divergence_and_entropy_are_by_the_book(latents: Latents) -> None:
    generator = torch.Generator().manual_seed(1)
    one, other = (latents.distribution(torch.randn(6, latents.outputs, generator=generator)) for _ in range(2))
    books = []
    for found in (one, other):
        if isinstance(found, Normal):
            books.append(torch.distributions.Independent(torch.distributions.Normal(found.mean, found.std), 1))
        else:
            books.append(torch.distributions.Independent(torch.distributions.Categorical(found.probs), 1))
    torch.testing.assert_close(one.kl(other), torch.distributions.kl_divergence(*books))
    torch.testing.assert_close(one.entropy(), books[0].entropy())


@pytest.mark.parametrize("latents", [Categorical(3, 5), Gaussian(4)], ids=["categorical", "gaussian"])
def test_what_is_stored_is_restored(latents: Categorical | Gaussian) -> None:
    outputs = torch.randn(6, latents.outputs, generator=torch.Generator().manual_seed(1))
    sample = latents.distribution(outputs).draw(torch.rand(6, latents.noise_size, generator=torch.Generator().manual_seed(2)))
    assert torch.equal(latents.restored(latents.stored(sample)), sample)
    nothing = torch.zeros(2, latents.size)
    assert torch.equal(latents.restored(latents.stored(nothing)), nothing), "the state before an episode is all zeros"


def test_classes_are_stored_as_bytes() -> None:
    latents = Categorical(32, 64)
    stored = latents.stored(latents.distribution(torch.zeros(2, latents.outputs)).mode())
    assert (stored.dtype, stored.shape) == (torch.uint8, (2, 32))


def test_below_the_free_nats_nothing_is_learnt_element_by_element() -> None:
    # Free nats after the mean would let elements with a large divergence pay for those with none (DreamerV1).
    logits = torch.tensor([[0.0, 0.1], [0.0, 6.0]]).requires_grad_()
    prior = torch.zeros(2, 2).requires_grad_()
    latents = Categorical(1, 2, unimix=0.0)
    dynamics, representation = balanced_kl(latents.distribution(logits), latents.distribution(prior), free=0.5)
    assert dynamics[0] == representation[0] == 0.5
    assert dynamics[1] > 0.5
    (of_prior,) = torch.autograd.grad(dynamics.sum(), [prior], retain_graph=True)
    (of_posterior,) = torch.autograd.grad(representation.sum(), [logits], retain_graph=True)
    for gradient in (of_prior, of_posterior):
        assert gradient[0].abs().sum() == 0
        assert gradient[1].abs().sum() > 0
    assert torch.autograd.grad(dynamics.sum(), [logits], retain_graph=True, allow_unused=True)[0] is None
    assert torch.autograd.grad(representation.sum(), [prior], allow_unused=True)[0] is None

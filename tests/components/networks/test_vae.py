"""A variational autoencoder: the paper's sizes, what its loss is made of, and that it learns to reconstruct."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.vae import VAE, Posterior, VAEConfig
from etude.errors import UserError

PICTURES = spaces.Box(0, 255, (64, 64, 3), np.uint8)
SMALL = VAEConfig(channels=(4, 4, 8, 8), hidden_dims=(16,))


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vae(space: spaces.Space[Any], size: int = 4, config: VAEConfig = SMALL) -> VAE:
    return VAE(config, space, size, generator=seeded())


def test_it_has_as_many_weights_as_in_the_paper() -> None:
    made = vae(PICTURES, 32, VAEConfig())
    assert sum(weights.numel() for weights in made.parameters()) == 4_348_547


@pytest.mark.parametrize("shape", [(64, 64, 3), (3, 64, 64), (2, 64, 64, 3), (64, 64, 1)], ids=str)
def test_pictures_come_back_in_the_form_they_were_in(shape: tuple[int, ...]) -> None:
    made = vae(spaces.Box(0, 255, shape, np.uint8))
    seen = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8, generator=seeded())
    latent = made(seen)
    pictures = made.decode(latent)
    assert latent.shape == (2, 3, 4)
    assert isinstance(pictures, torch.Tensor)
    assert pictures.shape == seen.shape
    assert bool(((pictures > 0) & (pictures < 1)).all())


def test_a_dict_is_seen_part_by_part() -> None:
    space = spaces.Dict(eye=PICTURES, arm=spaces.Box(-np.inf, np.inf, (2, 2)), mode=spaces.Discrete(3))
    made = vae(space)
    seen = {
        "eye": torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8, generator=seeded()),
        "arm": torch.randn(5, 2, 2, generator=seeded()),
        "mode": torch.tensor([0, 1, 2, 1, 0]),
    }
    back = made.decode(made(seen))
    assert {name: tuple(part.shape[1:]) for name, part in back.items()} == {"eye": (64, 64, 3), "arm": (2, 2), "mode": (3,)}
    loss, error, divergence = made.loss(seen, torch.zeros(5, 4), 0.0)
    torch.testing.assert_close(loss, error + divergence)


def test_the_error_is_the_sum_over_pixels_and_the_divergence_the_closed_form() -> None:
    made = vae(PICTURES)
    seen = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8, generator=seeded())
    noise = torch.randn(3, 4, generator=seeded())
    posterior = made.observe(seen)
    latent = posterior.mean + posterior.log_var.mul(0.5).exp() * noise
    _, error, divergence = made.loss(seen, noise, 0.5)
    torch.testing.assert_close(error, (made.decode(latent) - seen / 255).square().flatten(1).sum(1))  # type: ignore[operator]
    normal = torch.distributions.Normal(posterior.mean, posterior.log_var.mul(0.5).exp())
    prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
    torch.testing.assert_close(divergence, torch.distributions.kl_divergence(normal, prior).sum(-1))


def test_divergence_within_the_tolerance_costs_nothing_and_has_no_gradient() -> None:
    made = vae(spaces.Box(-1, 1, (3,)))
    seen, noise = torch.randn(6, 3, generator=seeded()), torch.zeros(6, 4)
    loss, error, divergence = made.loss(seen, noise, 100.0)
    torch.testing.assert_close(loss, error + 400.0)
    loss.sum().backward()
    assert made.log_var.weight.grad is None or not bool(made.log_var.weight.grad.any())
    above, error, divergence = made.loss(seen, noise, 0.0)
    torch.testing.assert_close(above, error + divergence)


def test_vectors_are_put_on_one_scale_once_it_has_looked() -> None:
    space = spaces.Box(-np.inf, np.inf, (2,))
    scale, middle = torch.tensor([1000.0, 0.01]), torch.tensor([5000.0, -1.0])
    plain = torch.randn(500, 2, generator=seeded())
    one, other = vae(space), vae(space)
    one.measure(plain)
    for piece in (plain * scale + middle).chunk(3):  # in pieces as at once
        other.measure(piece)
    torch.testing.assert_close(one(plain), other(plain * scale + middle), rtol=1e-2, atol=1e-2)
    back = other.decode(torch.zeros(1, 4)).reshape(-1)  # type: ignore[union-attr]
    assert bool(((back - middle).abs() < 5 * scale).all())


def test_its_loss_falls() -> None:
    space = spaces.Dict(eye=PICTURES, arm=spaces.Box(-1, 1, (2,)))
    made, chance = vae(space, 3), seeded()
    where = torch.randint(0, 48, (16,), generator=chance)
    eye = torch.zeros(16, 64, 64, 3, dtype=torch.uint8)
    for row, column in enumerate(where.tolist()):
        eye[row, 20:36, column : column + 16] = 255
    seen = {"eye": eye, "arm": torch.stack([where / 48, -where / 48], 1)}
    made.measure(seen)
    optimizer, losses = torch.optim.Adam(made.parameters(), 3e-3), []
    for _ in range(40):
        loss, error, _ = made.loss(seen, torch.randn(16, 3, generator=chance), 0.5)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        losses.append(float(error.mean().detach()))
    assert losses[-1] < 0.35 * losses[0]


def test_a_posterior_is_drawn_from_with_its_deviation() -> None:
    posterior = Posterior(torch.full((20_000,), 3.0), torch.full((20_000,), 4.0).log())
    drawn = posterior.draw(torch.randn(20_000, generator=seeded()))
    assert abs(float(drawn.mean()) - 3) < 0.1
    assert abs(float(drawn.std()) - 2) < 0.1


def test_pictures_of_another_size_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"pictures of 64 x 64 pixels, not 96 x 96; add \{id: resize, size: 64\}"):
        vae(spaces.Box(0, 255, (96, 96, 3), np.uint8))
    with pytest.raises(ValueError, match="channels must have 4 entries"):
        VAEConfig(channels=(8, 8))

"""Normalised layers: how they begin, latents on simplices, and ensembles of them."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from etude.components.critics import Ensemble
from etude.components.networks.build import build_network, build_networks
from etude.components.networks.conv_encoder import ConvEncoder
from etude.components.networks.normed_mlp import BatchedNormedMLP, NormedMLP, NormedMLPConfig
from etude.components.networks.spec import NetworkSpec
from etude.errors import UserError

BOX = spaces.Box(-1, 1, (5,))
IMAGE = spaces.Box(0, 255, (3, 64, 64), dtype="uint8")  # type: ignore[arg-type] # numpy takes its name


def network(space: spaces.Space, outputs: int, gain: float = 1.0, seed: int = 1, **options: object) -> NormedMLP:
    made = build_network(NormedMLPConfig(**options), space, outputs, seed=seed, output_gain=gain)  # type: ignore[arg-type] # as a user has them
    assert isinstance(made, NormedMLP)
    return made


def test_a_simplex_latent_is_made_of_distributions() -> None:
    latent = network(BOX, 24, hidden_dims=(16,), simplex=8)(torch.randn(7, 3, 5) * 100)
    assert latent.shape == (7, 3, 24)
    torch.testing.assert_close(latent.unflatten(-1, (3, 8)).sum(-1), torch.ones(7, 3, 3))
    assert latent.min() >= 0


def test_outputs_that_no_groups_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"network: simplex=8: 20 outputs can't be divided into groups of 8"):
        network(BOX, 20, simplex=8)


def test_first_weights_are_small_and_a_gain_of_zero_begins_at_zero() -> None:
    made = network(BOX, 3, gain=0.0, hidden_dims=(400, 400))
    assert [layer.weight.std().item() for layer in made.layers[:-1]] == pytest.approx([0.02, 0.02], rel=0.05)  # type: ignore[union-attr,operator] # linear
    assert not made(torch.randn(4, 5)).any()


def test_the_same_seed_begins_alike() -> None:
    one, other, third = (network(BOX, 3, seed=seed, hidden_dims=(8,)).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["layers.0.weight"], third["layers.0.weight"])


def test_an_ensemble_computes_what_its_members_do() -> None:
    members = [network(BOX, 4, seed=seed, hidden_dims=(16, 12), dropout=0.5).eval() for seed in range(3)]
    for member in members:  # norms that differ from one another
        for name, parameter in member.named_parameters():
            if "norm" in name:
                nn.init.uniform_(parameter, -1, 1)
    whole = Ensemble.of(members)
    assert isinstance(whole, BatchedNormedMLP)
    seen = torch.randn(6, 2, 5)
    torch.testing.assert_close(whole.eval()(seen), torch.stack([member(seen) for member in members]), rtol=1e-5, atol=1e-6)


def test_an_ensemble_drops_out_while_it_learns_only() -> None:
    whole = Ensemble.of([network(BOX, 4, seed=seed, hidden_dims=(64,), dropout=0.5) for seed in range(2)])
    seen = torch.randn(9, 5)
    assert not torch.equal(whole(seen), whole(seen))
    whole.eval()
    assert torch.equal(whole(seen), whole(seen))


def test_what_has_no_batched_form_is_still_an_ensemble() -> None:
    whole = Ensemble.of([network(BOX, 8, seed=seed, hidden_dims=(4,), simplex=4) for seed in range(2)])
    assert whole(torch.randn(3, 5)).shape == (2, 3, 8)


@pytest.mark.parametrize("space", [IMAGE, spaces.Dict(pixels=IMAGE, state=BOX)], ids=["image", "dict"])
def test_images_go_through_convolutions(space: spaces.Space) -> None:
    made = network(space, 16, hidden_dims=(8,), simplex=8)
    assert sum(isinstance(module, ConvEncoder) for module in made.modules()) == 1
    pixels = torch.zeros(2, 3, 3, 64, 64, dtype=torch.uint8)
    seen = {"pixels": pixels, "state": torch.zeros(2, 3, 5)} if isinstance(space, spaces.Dict) else pixels
    assert made(seen).shape == (2, 3, 16)


@pytest.mark.parametrize(("settings", "expected"), [({}, 32), ({"hidden_dims": (6,)}, 6)])
def test_the_algorithm_says_how_wide_unless_the_user_does(settings: dict[str, tuple[int, ...]], expected: int) -> None:
    roles = {"actor": NetworkSpec(2, hidden_dims=(32,))}
    chosen = {"actor": NormedMLPConfig(**settings)}  # type: ignore[arg-type] # as a user has them
    made = build_networks(chosen, roles, BOX, seed=1, device=torch.device("cpu"), algorithm="mine")["actor"]
    assert made.layers[0].out_features == expected  # type: ignore[union-attr,index] # linear

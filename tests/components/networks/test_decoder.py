"""Decoders: a network whose output has the form of a space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.build import build_network
from etude.components.networks.decoder import DecoderConfig
from etude.components.networks.mlp import MLPConfig
from etude.components.networks.spec import vector
from etude.errors import UserError
from etude.saved_components.component_file import load_component, save_component

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
SMALL = DecoderConfig(hidden_dims=(8,), channels=(6, 4))


def picture(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def build(space: spaces.Space[Any], size: int = 5, seed: int = 1) -> Any:
    return build_network(SMALL, vector(size), space, seed=seed)


@pytest.mark.parametrize(
    "space",
    [
        VECTOR,
        spaces.Box(-1, 1, (), np.float32),
        picture(3, 64, 64),
        picture(64, 48, 3),
        picture(17, 21),
        picture(4, 3, 9, 10),
        picture(1, 1, 3),
    ],
    ids=["vector", "number", "chw", "hwc", "grey, of an odd size", "stack", "one pixel"],
)
@pytest.mark.parametrize("batch", [(2,), (4, 2)], ids=["batch", "sequence"])
def test_what_comes_out_has_the_shape_of_the_space(space: Any, batch: tuple[int, ...]) -> None:
    assert build(space)(torch.zeros(*batch, 5)).shape == (*batch, *space.shape)


def test_a_dict_has_a_decoder_for_each_key_and_none_for_the_mask() -> None:
    parts = {"camera": picture(3, 16, 16), "joints": VECTOR, "gear": spaces.Discrete(4), "table": spaces.Box(0, 1, (2, 2))}
    space = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(2)})
    made = build(space)(torch.zeros(2, 5))
    shapes = {key: tuple(value.shape) for key, value in made.items()}
    assert shapes == {"camera": (2, 3, 16, 16), "joints": (2, 3), "gear": (2, 4), "table": (2, 2, 2)}


def test_channels_and_frames_lie_where_the_space_has_them() -> None:
    """Of one weight a channel, so that where each goes can be seen: (frames, height, width, channels)."""
    decoder = build(picture(2, 8, 8, 3))
    last = decoder.parts[0].growing[-1]
    last.weight.data.zero_()
    last.bias.data.copy_(torch.arange(6.0))  # frame 0: 0 1 2, frame 1: 3 4 5
    made = decoder(torch.zeros(1, 5))[0]
    assert made[0, 3, 4].tolist() == [0, 1, 2]
    assert made[1, 3, 4].tolist() == [3, 4, 5]


def test_it_learns_to_reconstruct_and_every_weight_has_a_gradient() -> None:
    torch.manual_seed(0)
    space = spaces.Dict({"camera": picture(1, 8, 8), "joints": VECTOR})
    decoder, features = build(space, seed=2), torch.randn(4, 5)
    wanted = {"camera": torch.rand(4, 1, 8, 8), "joints": torch.rand(4, 3)}
    optimizer, losses = torch.optim.Adam(decoder.parameters(), lr=0.01), []
    for _ in range(100):
        made = decoder(features)
        loss = torch.stack([(made[key] - wanted[key]).square().mean() for key in wanted]).sum()
        optimizer.zero_grad()
        loss.backward()
        assert all(weights.grad is not None for weights in decoder.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_its_first_weights_depend_on_the_seed_alone() -> None:
    space = spaces.Dict({"camera": picture(3, 16, 16), "joints": VECTOR})
    one, same, other = build(space), build(space), build(space, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.parts[0].growing[-1].weight, other.parts[0].growing[-1].weight)


def test_a_decoder_in_a_file_of_its_own_is_the_same(tmp_path: Any) -> None:
    decoder = build(spaces.Dict({"camera": picture(3, 16, 16), "joints": VECTOR}))
    loaded = load_component(save_component(decoder, tmp_path / "decoder.safetensors"), "network")
    torch.testing.assert_close(loaded(torch.ones(2, 5)), decoder(torch.ones(2, 5)), rtol=0, atol=0)


def test_numbers_and_spaces_are_not_taken_for_each_other() -> None:
    with pytest.raises(UserError, match=r"network.type=mlp: gives numbers, where Box.* is reconstructed; use a decoder"):
        build_network(MLPConfig(), vector(5), VECTOR, seed=1)
    with pytest.raises(UserError, match=r"network.type=decoder: reconstructs a space, where 3 numbers are needed"):
        build_network(SMALL, vector(5), 3, seed=1)
    with pytest.raises(ValueError, match="at least one"):
        DecoderConfig(channels=())

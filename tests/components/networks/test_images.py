"""Images through convolutions, whatever their layout, and each part of a Dict through the encoder that suits it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from etude.components.networks.cnn import CNN, CNNConfig
from etude.components.networks.conv_encoder import ConvEncoder, ConvEncoderConfig, suits_convolution
from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.keyed_encoder import KeyedEncoder, MLPEncoder, MLPEncoderConfig
from etude.components.networks.mlp import MLP, MLPConfig
from etude.components.networks.recurrent import GRU, GRUConfig
from etude.config.registry import encoders, register_encoder
from etude.config.validate import Part, Validator
from etude.errors import ConfigError, UserError

BOX = spaces.Box(-1, 1, (3,), np.float32)
SMALL: dict[str, Any] = {"channels": (4, 6), "kernels": (3, 2), "strides": (2, 1)}


def image(*shape: int, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, 255 if dtype is np.uint8 else 1, shape, dtype)


def pixels(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def encoder(space: Any, **options: Any) -> ConvEncoder:
    return ConvEncoder(ConvEncoderConfig(**options), space, generator=torch.Generator().manual_seed(0))


def cnn(space: Any, **options: Any) -> CNN:
    return CNN(CNNConfig(**options), space, 5, generator=torch.Generator().manual_seed(0))


# ---- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84)], ids=["hwc", "chw"])
def test_atari_frames_go_through_the_network_of_dqn(shape: tuple[int, ...]) -> None:
    net = cnn(image(*shape))
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [
        (32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 64 * 7 * 7), (5, 512),
    ]  # fmt: skip
    assert net(pixels(2, *shape)).shape == (2, 5)


def test_the_same_picture_in_any_layout_gives_the_same_features() -> None:
    picture = pixels(7, 12, 10, 3)
    last = encoder(image(12, 10, 3), **SMALL)(picture)
    first = encoder(image(3, 12, 10), **SMALL)(picture.permute(0, 3, 1, 2))
    floats = encoder(image(12, 10, 3, dtype=np.float32), **SMALL)(picture.float() / 255)
    torch.testing.assert_close(first, last)
    torch.testing.assert_close(floats, last)
    assert last.abs().max() < 10, "bytes become [0, 1]"


def test_stacked_frames_become_channels() -> None:
    stack = pixels(2, 4, 12, 10, 3)
    stacked = encoder(image(4, 12, 10, 3), **SMALL)(stack)
    merged = encoder(image(12, 12, 10), layout="chw", **SMALL)(stack.permute(0, 1, 4, 2, 3).flatten(1, 2))
    torch.testing.assert_close(stacked, merged)


def test_a_grey_picture_needs_no_channel() -> None:
    picture = pixels(2, 12, 10)
    torch.testing.assert_close(encoder(image(12, 10), **SMALL)(picture), encoder(image(12, 10, 1), **SMALL)(picture[..., None]))


def test_any_number_of_batch_dimensions() -> None:
    net, picture = encoder(image(12, 10, 3), hidden_dims=(9,), **SMALL), pixels(5, 2, 12, 10, 3)
    assert net.size == 9
    torch.testing.assert_close(net(picture), torch.stack([net(row) for row in picture]))
    assert net(picture[0, 0]).shape == (9,)


def test_convolutions_begin_orthogonal_and_depend_on_the_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same = cnn(image(12, 10, 3), **SMALL), cnn(image(12, 10, 3), **SMALL)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    layer = next(module for module in one.modules() if isinstance(module, nn.Conv2d))
    flat = layer.weight.flatten(1)
    torch.testing.assert_close(flat @ flat.T, 2 * torch.eye(4), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "options", "complaint"),
    [
        (image(10, 10, 3), {}, r"leave nothing of an image of 10×10 pixels; use smaller ones"),
        (image(84, 84, 84), {}, r"image of shape \(84, 84, 84\) chw or hwc\? set layout"),
        (BOX, {}, "a cnn needs an image to look at.*use an mlp"),
    ],
)
def test_what_a_cnn_cannot_read_is_refused(space: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        cnn(space, **options)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="network: channels, kernels and strides must be lists of the same length"):
        Validator().build(CNNConfig, {"channels": [8]}, "network")


# ---- parts of a Dict ------------------------------------------------------------------------------------------------

DICT = spaces.Dict({"pixels": image(40, 40, 3), "state": BOX, "room": spaces.Discrete(4), "action_mask": spaces.MultiBinary(2)})


def seen(n: int = 6) -> dict[str, torch.Tensor]:
    state = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(n, 2, dtype=torch.int8)
    return {"pixels": pixels(n, 40, 40, 3), "state": state, "room": torch.arange(n) % 4, "action_mask": mask}


@pytest.mark.parametrize(("cls", "config"), [(MLP, MLPConfig()), (CNN, CNNConfig(hidden_dims=(8,)))])
def test_each_part_gets_what_suits_its_space(cls: Any, config: Any) -> None:
    net = cls(config, DICT, 2, generator=torch.Generator().manual_seed(0))
    assert isinstance(net.encoder, KeyedEncoder)
    kinds = dict(zip(net.encoder._keys, (type(part).__name__ for part in net.encoder.parts), strict=True))
    assert kinds == {"pixels": "ConvEncoder", "state": "FlatPart", "room": "FlatPart"}
    assert net.encoder.size == 64 + 3 + 4
    features = net.encoder(seen())
    by_key = dict(zip(net.encoder._keys, features.split([part.size for part in net.encoder.parts], -1), strict=True))
    torch.testing.assert_close(by_key["state"], seen()["state"])
    assert by_key["room"].argmax(-1).tolist() == [0, 1, 2, 3, 0, 1]
    assert net(seen()).shape == (6, 2)


def test_encoders_are_chosen_by_key_in_yaml() -> None:
    options = {
        "encoders": {"pixels": {"type": "cnn", "channels": [4], "kernels": [5], "strides": [5]}, "state": {"type": "mlp"}}
    }
    config = Validator().build(GRUConfig, options, "network.actor")
    assert config.encoders["state"] == MLPEncoderConfig()
    net = GRU(config, DICT, 2, generator=torch.Generator().manual_seed(0))
    assert isinstance(net.encoder, KeyedEncoder)
    assert net.encoder.size == 4 * 8 * 8 + 64 + 4
    output, _ = net(seen(), net.initial_state(6), torch.ones(6, dtype=torch.bool))
    assert output.shape == (6, 2)


def test_a_single_observation_has_a_key_too() -> None:
    net = MLP(MLPConfig(encoders={"observation": MLPEncoderConfig(hidden_dims=(7,))}), BOX, 2, generator=torch.Generator())
    assert isinstance(net.encoder, KeyedEncoder)
    assert isinstance(net.encoder.parts[0], MLPEncoder)
    assert net(torch.zeros(3, 3)).shape == (3, 2)


def test_without_images_or_choices_all_is_flat_and_small_pictures_stay_so() -> None:
    small = spaces.Dict({"view": image(7, 7, 3), "state": BOX})
    for space in (BOX, small, image(40, 40, 3)):
        assert type(MLP(MLPConfig(), space, 2, generator=torch.Generator()).encoder) is FlatEncoder
    assert not suits_convolution(image(7, 7, 3))
    assert suits_convolution(image(36, 36, 3))
    assert suits_convolution(image(4, 84, 84))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"encoders": {"pixel": {"type": "cnn"}}}, "encoders.pixel: observations have no such part; did you mean 'pixels'"),
        ({"encoders": {"state": {"type": "cnn"}}}, "encoders.state: a cnn reads images"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused_by_key(options: dict[str, Any], complaint: str) -> None:
    config = Validator().build(MLPConfig, options, "network.actor")
    with pytest.raises(UserError, match=complaint):
        MLP(config, DICT, 2, generator=torch.Generator())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"state": {"type": "cnnn"}}, "network.encoders.state: unknown encoder 'cnnn'; did you mean 'cnn'"),
        ({"state": {"type": "mlp", "width": 3}}, "network.encoders.state.width: unknown key"),
    ],
)
def test_a_wrong_option_of_an_encoder_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Validator().build(MLPConfig, {"encoders": options}, "network")


def test_an_encoder_of_ones_own_has_a_size_and_reads_its_part() -> None:
    @register_encoder("halves-of-the-image-tests")
    class Halves(nn.Module):
        """Half of everything."""

        def __init__(self, space: Any, times: int = 1) -> None:
            super().__init__()
            self.times = times
            if times < 5:
                self.size = int(np.prod(space.shape))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value / 2**self.times

    try:
        chosen = Validator().build(
            MLPConfig, {"encoders": {"state": {"type": "halves-of-the-image-tests", "times": 2}}}, "network"
        )
        net = MLP(chosen, spaces.Dict({"state": BOX}), 2, generator=torch.Generator())
        assert net.encoder({"state": torch.ones(1, 3)}).tolist() == [[0.25] * 3]
        sizeless = MLPConfig(encoders={"observation": Part("halves-of-the-image-tests", {"times": 9})})
        with pytest.raises(UserError, match=r"encoders.observation: halves-of-the-image-tests has no 'size'"):
            MLP(sizeless, BOX, 2, generator=torch.Generator())
    finally:
        del encoders._registered["halves-of-the-image-tests"]

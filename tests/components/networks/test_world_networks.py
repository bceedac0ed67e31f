"""The networks of world models: what they read and reconstruct, and how they begin."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.build import build_network
from etude.components.networks.spec import vector
from etude.components.networks.world_decoder import WorldDecoderConfig, reconstruction_error
from etude.components.networks.world_encoder import WorldEncoderConfig
from etude.components.networks.world_mlp import WorldMLPConfig
from etude.components.two_hot import symlog
from etude.environments.spaces import observation_specs

PICTURE = spaces.Box(0, 255, (32, 32, 3), np.uint8)
SPACES: dict[str, gymnasium.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (5,), np.float32),
    "number": spaces.Box(-1, 1, (), np.float32),
    "choice": spaces.Discrete(4, start=2),
    "choices": spaces.MultiDiscrete([2, 3]),
    "picture": PICTURE,
    "odd picture": spaces.Box(0, 255, (3, 21, 18), np.uint8),
    "both": spaces.Dict({"camera": PICTURE, "joints": spaces.Box(-np.inf, np.inf, (3,), np.float32)}),
}
STATE = spaces.Dict({"deter": vector(16), "stoch": vector(12)})


def seen(space: gymnasium.Space[Any], count: int) -> Any:
    samples = [space.sample() for _ in range(count)]
    specs = observation_specs(space)
    parts = {
        name: torch.as_tensor(np.stack([s[name] if name else s for s in samples]), dtype=spec.dtype)
        for name, spec in specs.items()
    }
    return parts.get("", parts)


@pytest.mark.parametrize("name", SPACES)
def test_what_is_read_can_be_reconstructed(name: str) -> None:
    space = SPACES[name]
    space.seed(1)
    encoder = build_network(WorldEncoderConfig(depth=1), space, 8, seed=1, width=16)
    decoder = build_network(WorldDecoderConfig(depth=1), STATE, space, seed=1, width=16)
    observation = seen(space, 6)
    assert encoder(observation).shape == (6, 8)
    made = decoder({"deter": torch.randn(6, 16), "stoch": torch.randn(6, 12)})
    error = reconstruction_error(made, observation, space)
    assert error.shape == (6,)
    error.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in decoder.parameters() if p.grad is not None)


def test_leading_dimensions_may_be_any() -> None:
    space = SPACES["both"]
    space.seed(1)
    encoder = build_network(WorldEncoderConfig(depth=1), space, 8, seed=1, width=16)
    decoder = build_network(WorldDecoderConfig(depth=1), STATE, space, seed=1, width=16)
    flat = seen(space, 6)
    windows = {name: part.unflatten(0, (2, 3)) for name, part in flat.items()}
    torch.testing.assert_close(encoder(windows).flatten(0, 1), encoder(flat))
    state = {"deter": torch.randn(6, 16), "stoch": torch.randn(6, 12)}
    made = decoder({name: part.unflatten(0, (2, 3)) for name, part in state.items()})
    for name, part in decoder(state).items():
        torch.testing.assert_close(made[name].flatten(0, 1), part)


def test_errors_are_of_symlog_for_vectors_and_of_zero_to_one_for_pictures() -> None:
    numbers = torch.tensor([[0.0, 100.0, -3.0, 1.0, 0.5]])
    error = reconstruction_error(torch.zeros(1, 5), numbers, SPACES["vector"])
    torch.testing.assert_close(error, symlog(numbers).square().sum(-1))
    picture = torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)
    assert reconstruction_error(torch.full((1, 32, 32, 3), 0.5), picture, PICTURE).item() == pytest.approx(32 * 32 * 3 * 0.25)


def test_layers_begin_by_their_fan_in_and_outputs_at_zero_where_asked() -> None:
    network = build_network(WorldMLPConfig(layers=1), vector(400), 300, seed=1, output_gain=0.0, width=500)
    weight = network.layers[0].linear.weight  # type: ignore[union-attr, index] # normed layers, and a last one
    assert weight.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.02)
    assert weight.abs().max().item() <= 2 * 1.1368 / math.sqrt(400) + 1e-6, "cut off at two standard deviations"
    assert network(torch.randn(3, 400)).abs().sum() == 0


def test_the_width_is_the_algorithms_unless_settings_say_otherwise() -> None:
    wide = build_network(WorldMLPConfig(layers=2), vector(4), 3, seed=1, width=48)
    own = build_network(WorldMLPConfig(layers=2, units=24), vector(4), 3, seed=1, width=48)
    assert [network.layers[0].linear.out_features for network in (wide, own)] == [48, 24]  # type: ignore[union-attr, index]

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.mlp import ACTIVATIONS, MLP, Activation, MLPConfig
from etude.config.registry import networks, register_network
from etude.config.schema import Config, EnvironmentConfig, ExperimentConfig
from etude.config.validate import Validator
from etude.errors import ConfigError, UserError
from etude.training import assembly
from etude.workflows.ppo import PPOConfig

BOX = spaces.Box(-1, 1, (3,), np.float32)


def mlp(seed: int = 0, *, space: Any = BOX, output_size: int = 2, **options: Any) -> MLP:
    return MLP(MLPConfig(**options), space, output_size, generator=torch.Generator().manual_seed(seed))


def ppo_config(network: dict[str, Any], seed: int = 1) -> Config:
    return Config(
        experiment=ExperimentConfig(seed=seed, device="cpu"),
        environment=EnvironmentConfig(id="CartPole-v1", num_envs=2),
        algorithm=PPOConfig(rollout_steps=8, batch_size=8),
        network=network,
    )


def weights(seed: int, network: dict[str, Any] | None = None) -> dict[str, torch.Tensor]:
    config = ppo_config(network or {"actor": MLPConfig(), "critic": MLPConfig()}, seed)
    workflow: Any = assembly.build_workflow(config, BOX, spaces.Discrete(2))
    roles = {"actor": workflow.actor, "critic": workflow.critic}
    return {f"{role}.{name}": value for role, net in roles.items() for name, value in net.state_dict().items()}


# ---- the MLP --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "tanh", "elu", "selu", "gelu", "silu", "leaky_relu", "identity"])
def test_every_activation_stands_between_the_layers(name: str) -> None:
    net = mlp(activation=name, hidden_dims=(5, 4))
    first, activation, second, again, last = net.layers
    assert type(activation) is type(again) is ACTIVATIONS[name]
    x = torch.randn(7, 3)
    function = getattr(nn.functional, name, lambda value: value)
    torch.testing.assert_close(net(x), last(function(second(function(first(x))))))


def test_the_config_names_exactly_the_activations_there_are() -> None:
    assert set(get_args(Activation)) == set(ACTIVATIONS)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"activation": "reluu"}, "network.activation=reluu: must be one of.*did you mean 'relu'"),
        ({"hidden_dims": [64, 0]}, r"network.hidden_dims\[1\]=0: must be at least 1"),
        ({"hidden_dims": 64}, "network.hidden_dims=64: must be a list"),
        ({"width": 3}, "network.width: unknown key"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Validator().build(MLPConfig, options, "network")


def test_sizes_come_from_spaces() -> None:
    net = mlp(space=spaces.Dict({"a": BOX, "b": spaces.Discrete(4)}), output_size=6, hidden_dims=(9, 8))
    shapes = [tuple(layer.weight.shape) for layer in net.layers if isinstance(layer, nn.Linear)]
    assert shapes == [(9, 7), (8, 9), (6, 8)]


def test_no_hidden_layers_is_a_linear_map() -> None:
    net = mlp(hidden_dims=())
    assert [type(layer) for layer in net.layers] == [nn.Linear]


# ---- initial weights ------------------------------------------------------------------------------------------------


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    first = weights(seed=1)
    torch.manual_seed(12345)
    second = weights(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = weights(seed=2)
    assert all(not torch.equal(first[name], other[name]) for name in first if "weight" in name)


def test_building_does_not_touch_the_global_generators() -> None:
    torch.manual_seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 # the global one is meant
    weights(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_one_role_does_not_change_the_weights_of_another() -> None:
    small = weights(1, {"actor": MLPConfig(hidden_dims=(8,)), "critic": MLPConfig()})
    large = weights(1, {"actor": MLPConfig(hidden_dims=(32, 32)), "critic": MLPConfig()})
    assert all(torch.equal(small[name], large[name]) for name in small if name.startswith("critic"))


def test_layers_begin_orthogonal_with_zero_biases() -> None:
    net = MLP(MLPConfig(hidden_dims=(16, 8)), BOX, 2, generator=torch.Generator().manual_seed(0), output_gain=0.01)
    layers = [layer for layer in net.layers if isinstance(layer, nn.Linear)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, 0.01), strict=True):
        rows, columns = layer.weight.shape
        square = layer.weight @ layer.weight.T if rows <= columns else layer.weight.T @ layer.weight
        torch.testing.assert_close(square, gain**2 * torch.eye(len(square)), rtol=1e-4, atol=1e-5)
        assert not layer.bias.any()


# ---- choosing networks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstantConfig:
    type: str = "constant"
    value: float = 0.0


@pytest.fixture
def constant() -> Iterator[str]:
    name = "constant-of-the-network-tests"

    @register_network(name)
    class Constant(nn.Module):
        """Always the same number."""

        Config = ConstantConfig

        def __init__(self, config: ConstantConfig, space: Any, output_size: int, *, generator: Any, output_gain: float) -> None:
            super().__init__()
            self.outputs = nn.Parameter(torch.full((output_size,), config.value))

        def forward(self, observation: Any) -> torch.Tensor:
            return self.outputs.expand(len(observation), -1)

    yield name
    del networks._registered[name]


def test_actor_and_critic_may_differ_in_type_and_size(constant: str) -> None:
    config = ppo_config({"actor": MLPConfig(hidden_dims=(7, 5)), "critic": ConstantConfig(type=constant, value=4.0)})
    workflow: Any = assembly.build_workflow(config, BOX, spaces.Discrete(3))
    assert [layer.out_features for layer in workflow.actor.layers if isinstance(layer, nn.Linear)] == [7, 5, 3]
    assert workflow.critic(torch.zeros(2, 3)).tolist() == [[4.0], [4.0]]


def test_a_decorated_class_can_be_named_and_a_name_taken_only_once(constant: str) -> None:
    assert constant in networks.names()
    assert networks.resolve(constant).__name__ == "Constant"
    assert networks.describe()[constant] == "Always the same number."
    with pytest.raises(UserError, match=f"network '{constant}' is registered already"):
        register_network(constant)(nn.Linear)
    with pytest.raises(UserError, match="network 'mlp' is registered already"):
        register_network("mlp")(nn.Linear)


def test_an_unknown_type_is_refused_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"unknown network 'mpl'.*did you mean 'mlp'"):
        networks.resolve("mpl")


# ---- observations to features ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "observation", "features"),
    [
        (spaces.Box(-1, 1, (2,)), torch.tensor([[0.5, -0.5]]), [[0.5, -0.5]]),
        (spaces.Box(-1, 1, ()), torch.tensor([0.5, 0.25]), [[0.5], [0.25]]),
        (spaces.Box(0, 255, (1, 2, 1), np.uint8), torch.tensor([[[[0], [255]]]], dtype=torch.uint8), [[0.0, 1.0]]),
        (spaces.Discrete(3), torch.tensor([2, 0]), [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        (spaces.Discrete(3, start=5), torch.tensor([5, 7]), [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 0]]), [[0.0, 1.0, 1.0, 0.0, 0.0]]),
        (spaces.MultiDiscrete([2, 2], start=[1, -1]), torch.tensor([[2, -1]]), [[0.0, 1.0, 1.0, 0.0]]),
        (spaces.MultiBinary(3), torch.tensor([[1, 0, 1]], dtype=torch.int8), [[1.0, 0.0, 1.0]]),
    ],
    ids=str,
)
def test_each_space_becomes_one_vector(space: Any, observation: torch.Tensor, features: list[list[float]]) -> None:
    encoder = FlatEncoder(space)
    assert encoder.size == len(features[0])
    assert encoder(observation).tolist() == features


def test_a_dict_is_joined_without_its_action_mask() -> None:
    space = spaces.Dict({"b": spaces.Discrete(2), "a": BOX, "action_mask": spaces.MultiBinary(4)})
    encoder = FlatEncoder(space)
    observation = {"action_mask": torch.ones(1, 4), "a": torch.tensor([[1.0, 2.0, 3.0]]), "b": torch.tensor([1])}
    parts = {"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0]}
    expected = [value for name in space.spaces if name != "action_mask" for value in parts[name]]
    assert encoder(observation).tolist() == [expected]
    assert encoder.size == 5

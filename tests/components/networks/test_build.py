"""Networks by name, by import path and from Python; a wrong option is one clear error, and a seed says all weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.distributions import Categorical, Gaussian
from etude.components.networks.actor_critic import make_actor_critic
from etude.components.networks.build import build_network
from etude.config.compose import compose
from etude.config.registry import networks
from etude.config.validate import Part
from etude.errors import ConfigError, UserError
from etude.training import assembly

BOX = spaces.Box(-1, 1, (4,), np.float32)
PICTURE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
MODULE = '''
"""A network of one's own, without a Config: torch's layers, its own options."""

from dataclasses import dataclass

import torch
from torch import nn


class Wide(nn.Module):
    """One wide layer."""

    def __init__(self, observation_space, output_size, width=8):
        super().__init__()
        if width > 100:
            raise ValueError(f"{width} is too wide for me")
        self.layers = nn.Sequential(nn.Linear(observation_space.shape[0], width), nn.ReLU(), nn.Linear(width, output_size))

    def forward(self, observation):
        return self.layers(observation)


def not_a_network(observation_space, output_size):
    return "text"


class Forwards:
    """Has a forward, and is no module."""

    def __init__(self, observation_space, output_size):
        pass

    def forward(self, observation):
        return observation
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_networks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "my_networks"


def workflow(*words: str, seed: int = 1) -> Any:
    config = assembly.resolve(
        compose("CartPole-v1:ppo", words=[*words, f"experiment.seed={seed}", "experiment.device=cpu"]).config
    )
    return assembly.build_workflow(config, BOX, spaces.Discrete(2))


@pytest.mark.parametrize("path", ["my_networks.Wide", "my_networks:Wide"])
def test_an_import_path_is_a_network_and_its_options_are_forwarded(module: str, path: str) -> None:
    built = workflow(f"network.actor={{type: '{path}', width: 5}}")
    assert type(built.actor).__name__ == "Wide"
    assert built.actor.layers[0].out_features == 5
    assert built.actor(torch.zeros(3, 4)).shape == (3, 2)
    assert type(built.critic).__name__ == "MLP"


def test_the_weights_of_torchs_own_layers_depend_on_the_seed_and_the_role_alone(module: str) -> None:
    words = ("network.actor.type=my_networks.Wide", "network.critic.type=my_networks.Wide")
    torch.manual_seed(5)
    one = workflow(*words)
    torch.manual_seed(6)
    same, other = workflow(*words), workflow(*words, seed=2)
    hidden = [built.layers[0].weight for built in (one.actor, same.actor, other.actor, one.critic)]
    assert torch.equal(hidden[0], hidden[1])
    assert not torch.equal(hidden[0], hidden[2])
    assert not torch.equal(hidden[0], hidden[3])


@pytest.mark.parametrize(
    ("network", "complaint"),
    [
        (
            "{type: my_networks.Wide, widht: 5}",
            "network.actor.widht: unknown option of 'my_networks.Wide'; did you mean 'width'",
        ),
        ("{type: my_networks.Wide, output_size: 5}", "network.actor.output_size: is set from elsewhere in the config"),
        ("{type: my_networks.Wild}", "my_networks' has no 'Wild'; did you mean 'Wide'"),
        ("{type: my_network.Wide}", "there is no module 'my_network' here"),
        ("{type: my_networks.not_a_network}", "is no network: it has no forward"),
        ("{type: gruu}", "network.actor: unknown network 'gruu'; did you mean 'gru'"),
    ],
)
def test_a_wrong_network_is_refused_before_anything_is_built(module: str, network: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        compose("CartPole-v1:ppo", words=[f"network.actor={network}"])


@pytest.mark.parametrize(
    ("network", "complaint"),
    [
        ("{type: my_networks.Wide, width: 500}", "network.actor: my_networks.Wide can't be built: ValueError: 500 is too wide"),
        ("{type: my_networks.Wide, width: text}", "network.actor: my_networks.Wide can't be built: TypeError"),
        ("{type: my_networks.Forwards}", "network.actor: my_networks.Forwards is no network: it makes a Forwards"),
        ("{type: cnn}", "network.actor: a cnn needs an image"),
        ("{type: mlp, encoders: {wheel: flat}}", "network.actor: encoders.wheel: observations have no such part"),
    ],
)
def test_what_only_building_can_show_names_the_role(module: str, network: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        workflow(f"network.actor={network}")


@pytest.mark.parametrize("name", ["mlp", "cnn", "gru", "lstm", "transformer"])
def test_every_network_has_a_name(name: str) -> None:
    options = networks.resolve(name).Config()
    assert options.type == name
    built = build_network(options, PICTURE, 3, seed=1)
    again = build_network(options, PICTURE, 3, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(built.parameters(), again.parameters(), strict=True))


# ---- from Python ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("critic", [True, False], ids=["actor-critic", "policy only"])
@pytest.mark.parametrize(("name", "space"), [("mlp", BOX), ("cnn", PICTURE)])
def test_a_policy_is_made_from_spaces_with_or_without_a_critic(name: str, space: Any, critic: bool) -> None:
    model = make_actor_critic(space, spaces.Discrete(3), name, critic=critic, hidden_dims=[16])
    observation = torch.zeros(5, *space.shape, dtype=torch.uint8 if space is PICTURE else torch.float32)
    distribution, value = model(observation)
    assert isinstance(distribution, Categorical)
    assert distribution.log_probs.shape == (5, 3)
    assert (value is None) == (not critic)
    assert value is None or value.shape == (5,)


def test_the_noise_of_continuous_actions_is_learnt_or_fixed_and_saved() -> None:
    model = make_actor_critic(BOX, spaces.Box(-1, 1, (2,)), init_noise_std=0.5)
    distribution, _ = model(torch.zeros(1, 4))
    assert isinstance(distribution, Gaussian)
    torch.testing.assert_close(distribution.log_std.exp(), torch.full((2,), 0.5))
    model.head.log_std.data.fill_(-2.0)  # type: ignore[union-attr, operator]
    other = make_actor_critic(BOX, spaces.Box(-1, 1, (2,)), seed=9)
    other.load_state_dict(model.state_dict())
    assert other.head.log_std.tolist() == [-2.0, -2.0]  # type: ignore[union-attr, operator]
    assert not make_actor_critic(BOX, spaces.Box(-1, 1, (2,)), fixed_std=True).head.log_std.requires_grad  # type: ignore[union-attr]


def test_masked_choices_have_no_probability() -> None:
    space = spaces.Dict({"x": BOX, "action_mask": spaces.MultiBinary(3)})
    model = make_actor_critic(space, spaces.Discrete(3))
    distribution, _ = model({"x": torch.zeros(2, 4), "action_mask": torch.tensor([[1, 0, 1], [0, 1, 0]])})
    assert isinstance(distribution, Categorical)
    assert (distribution.log_probs.exp() == 0).tolist() == [[False, True, False], [True, False, True]]


def test_wrong_options_from_python_are_named_too(module: str) -> None:
    with pytest.raises(ConfigError, match=r"network.hidden: unknown key"):
        make_actor_critic(BOX, spaces.Discrete(2), hidden=[3])
    with pytest.raises(ConfigError, match=r"network.widht: unknown option"):
        make_actor_critic(BOX, spaces.Discrete(2), "my_networks.Wide", widht=3)
    with pytest.raises(UserError, match="gru has memory"):
        make_actor_critic(BOX, spaces.Discrete(2), "gru")
    assert type(make_actor_critic(BOX, spaces.Discrete(2), "my_networks:Wide", width=3).actor).__name__ == "Wide"
    with pytest.raises(UserError, match=r"actor: my_networks.Wide can't be built"):
        build_network(Part("my_networks.Wide", {"width": 1000}), BOX, 2, seed=1, where="actor")

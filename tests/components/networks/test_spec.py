"""What an algorithm asks of its networks is what it gets, or one line says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from etude.components.distributions import make_head
from etude.components.networks.build import build_network, build_networks
from etude.components.networks.decoder import DecoderNetwork
from etude.components.networks.spec import POLICY_GAIN, Features, NetworkSpec
from etude.compute.random_streams import derive_seed
from etude.config.constraints import Component
from etude.config.validate import Validator
from etude.errors import UserError

HERE = __name__
CAMERA = spaces.Box(0, 255, (3, 16, 16), np.uint8)
SEEN = spaces.Dict({"camera": CAMERA, "joints": spaces.Box(-1, 1, (3,), np.float32)})


class Reads(nn.Module):
    """A network of a user's own."""

    def __init__(self, observation_space: Any, output_size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(observation_space.shape[0], output_size)

    def forward(self, observation: Any) -> Any:
        return self.layer(observation)


class Forgetful(Reads):
    """Has a state, and does not say so."""

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n)


class Rebuilds(DecoderNetwork):
    """A decoder of a user's own."""

    def __init__(self, input_space: Any, output_space: Any, size: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(input_space.shape[0], size)

    def forward(self, features: Any) -> Any:
        return self.layer(features)


def build(roles: dict[str, NetworkSpec], space: Any = SEEN, seed: int = 1, **chosen: Any) -> dict[str, Any]:
    settings = {role: Validator().choose(Component("network"), value, f"network.{role}") for role, value in chosen.items()}
    return build_networks(settings, roles, space, seed=seed, device=torch.device("cpu"), algorithm="mine")


def test_an_encoder_a_latent_a_decoder_and_heads_of_distributions_fit_together() -> None:
    actions = spaces.Discrete(4)
    built = build(
        {
            "encoder": NetworkSpec(12),
            "decoder": NetworkSpec(SEEN, inputs=12),
            "actor": NetworkSpec(make_head(actions), inputs=12, output_gain=POLICY_GAIN),
            "critic": NetworkSpec(1, inputs=Features("actor"), copies=3),
        },
        encoder={"type": "mlp"},
        decoder={"type": "decoder", "channels": [4]},
        actor={"type": "mlp", "hidden_dims": [7]},
        critic={"type": "mlp"},
    )
    seen = {"camera": torch.zeros(5, 3, 16, 16, dtype=torch.uint8), "joints": torch.zeros(5, 3)}
    latent = built["encoder"](seen)
    assert latent.shape == (5, 12)
    assert {key: value.shape for key, value in built["decoder"](latent).items()} == {k: v.shape for k, v in seen.items()}
    assert built["actor"](latent).shape == (5, 4)
    features = built["actor"].features(latent)
    assert features.shape == (5, 7)
    assert built["critic"](features).shape == (3, 5, 1)


def test_first_weights_depend_on_the_seed_the_role_and_the_copy_alone() -> None:
    spec = NetworkSpec(2, inputs=4, output_gain=0.5)
    both = build({"other": spec, "mine": spec}, mine={"type": "mlp"}, other={"type": "mlp"})
    options = Validator().choose(Component("network"), {"type": "mlp"}, "network")
    alone = build_network(options, spaces.Box(-np.inf, np.inf, (4,)), 2, seed=derive_seed(1, "init", "mine"), output_gain=0.5)
    for ours, theirs in zip(both["mine"].parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    ensemble = build({"mine": NetworkSpec(2, inputs=4, copies=2)}, mine={"type": "mlp"})["mine"]
    second = build_network(options, spaces.Box(-np.inf, np.inf, (4,)), 2, seed=derive_seed(1, "init", "mine", 1))
    assert torch.equal(ensemble.weights[0][1], second.layers[0].weight.T)  # type: ignore[index, union-attr] # an mlp's


@pytest.mark.parametrize(
    ("spec", "chosen", "said"),
    [
        (NetworkSpec(2), {}, "network.mine: has no settings"),
        (NetworkSpec(2), {"mine": "mlp", "more": "mlp"}, "network.more: the class method `roles` of mine says nothing of it"),
        (NetworkSpec(2), {"mine": "gru"}, "network.mine.type=gru: this network has memory, and mine looks at one observation"),
        (NetworkSpec(2, methods=("imagine",)), {"mine": "mlp"}, "network.mine.type=mlp: mine needs its method 'imagine'"),
        (NetworkSpec(2, inputs=Features("none")), {"mine": "mlp"}, "network.mine: reads features of 'none'"),
        (NetworkSpec(2), {"mine": {"type": "head"}}, "network.mine.type=head: mine trains its networks apart"),
        (NetworkSpec(SEEN), {"mine": "mlp"}, "network.mine.type=mlp: gives numbers, where Dict"),
        (NetworkSpec(2, inputs=3), {"mine": f"{HERE}.Forgetful"}, r"Forgetful has memory: derive it from .*MemoryNetwork"),
        (NetworkSpec(2, inputs=3), {"mine": f"{HERE}.Rebuilds"}, "Rebuilds: reconstructs a space, where 2 numbers are needed"),
        (NetworkSpec(CAMERA, inputs=3), {"mine": f"{HERE}.Rebuilds"}, r"gives \(2, 3\) for two observations, where \(2, 3, 16"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_the_role(spec: NetworkSpec, chosen: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        build({"mine": spec}, **{role: value if isinstance(value, dict) else {"type": value} for role, value in chosen.items()})


def test_features_come_from_networks_that_have_a_last_layer_of_their_own() -> None:
    roles = {"mine": NetworkSpec(2, may_remember=True), "other": NetworkSpec(1, inputs=Features("mine"))}
    with pytest.raises(UserError, match=r"network.mine: other reads its features, and a GRU has none; use a cnn or an mlp"):
        build(roles, mine={"type": "gru"}, other={"type": "mlp"})


def test_networks_and_decoders_of_ones_own_are_fed_by_the_same_specs() -> None:
    joints = SEEN["joints"]
    built = build(
        {"mine": NetworkSpec(4, inputs=joints), "back": NetworkSpec(joints, inputs=4)},
        mine={"type": f"{HERE}.Reads"},
        back={"type": f"{HERE}.Rebuilds"},
    )
    assert built["back"](built["mine"](torch.zeros(6, 3))).shape == (6, 3)

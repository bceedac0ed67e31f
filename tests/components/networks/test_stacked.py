"""Many sets of weights in one pass are the same network, one after the other with each of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.components.networks.cnn import CNN, CNNConfig
from etude.components.networks.keyed_encoder import MLPEncoderConfig
from etude.components.networks.mlp import MLP, MLPConfig
from etude.components.networks.stacked import Stacked
from etude.compute.trees import map_tree

ROWS = 5
VECTOR = spaces.Box(-1, 1, (4,))
PICTURE = spaces.Box(0, 255, (3, 40, 40), np.uint8)
NUMBER = spaces.Discrete(3)
PARTS = spaces.Dict({"state": VECTOR, "number": NUMBER})


def mlp(space: gymnasium.Space[Any], *hidden: int, **options: Any) -> nn.Module:
    return MLP(MLPConfig(hidden_dims=hidden, **options), space, 2, generator=torch.Generator().manual_seed(1))


def cnn() -> nn.Module:
    return CNN(CNNConfig(hidden_dims=(8,)), PICTURE, 2, generator=torch.Generator().manual_seed(1))


def seen(space: gymnasium.Space[Any]) -> Any:
    values = [space.sample() for _ in range(ROWS)]
    if isinstance(space, spaces.Dict):
        return {key: torch.as_tensor(np.stack([value[key] for value in values])) for key in space}
    return torch.as_tensor(np.stack(values))


CASES = {
    "linear": (mlp(VECTOR), VECTOR),
    "layers": (mlp(VECTOR, 8, 6, activation="relu"), VECTOR),
    "a number": (mlp(NUMBER, 8), NUMBER),
    "a dict": (mlp(PARTS, 8), PARTS),
    "encoders with weights": (mlp(PARTS, 8, encoders={"state": MLPEncoderConfig(hidden_dims=(6,))}), PARTS),
    "convolutions": (cnn(), PICTURE),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_each_row_goes_through_its_own_network(case: str) -> None:
    network, space = CASES[case]
    stacked = Stacked(network)
    assert stacked.size == sum(part.numel() for part in network.parameters())
    vectors = stacked.read() + 0.3 * torch.randn(ROWS, stacked.size, generator=torch.Generator().manual_seed(2))
    observation = seen(space)
    together = stacked.bound(vectors)(observation)
    alone = []
    for row, vector in enumerate(vectors):
        stacked.write(vector)
        assert torch.equal(stacked.read(), vector)
        alone.append(network(map_tree(lambda part, row=row: part[row : row + 1], observation))[0])
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_what_does_not_learn_is_the_same_for_all() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.last = nn.Linear(4, 3).requires_grad_(False), nn.Linear(3, 2)

        def forward(self, observation: Tensor) -> Tensor:
            return self.last(self.frozen(observation))

    network = Half()
    stacked, observation = Stacked(network), seen(VECTOR)
    assert stacked.size == 8
    same = stacked.bound(stacked.read().expand(ROWS, -1))(observation)
    torch.testing.assert_close(same, network(observation))

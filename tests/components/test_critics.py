"""Critics: one, two or many say what each of them would say alone, and targets follow them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.critics import BatchedMLP, Ensemble, Follow, space_with_action, target_of, with_action
from etude.components.networks.batched_residual_mlp import BatchedResidualMLP
from etude.components.networks.groups import GroupReader, reads_group
from etude.components.networks.mlp import MLP, MLPConfig
from etude.components.networks.modes import mode_dependent
from etude.components.networks.residual_mlp import ResidualMLP, ResidualMLPConfig, projection

SPACE = space_with_action(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32))


def members(count: int) -> list[MLP]:
    config = MLPConfig(hidden_dims=(8, 6), activation="relu")
    return [MLP(config, SPACE, 4, generator=torch.Generator().manual_seed(i)) for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_ensemble_says_what_its_members_say(count: int) -> None:
    networks = members(count)
    rows = with_action(torch.randn(7, 3), torch.randn(7, 2))
    expected = torch.stack([network(rows) for network in networks])
    together = Ensemble.of(networks)
    assert isinstance(together, BatchedMLP) == (count > 1)
    torch.testing.assert_close(together(rows), expected)
    assert together(rows).shape == (count, 7, 4)


def test_members_of_another_kind_are_asked_one_by_one() -> None:
    class Twice(MLP):
        def forward(self, observation: object) -> torch.Tensor:
            return 2 * super().forward(observation)  # type: ignore[arg-type]

    config = MLPConfig(hidden_dims=(8,))
    networks = [Twice(config, SPACE, 1, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    rows = with_action(torch.randn(7, 3), torch.randn(7, 2))
    together = Ensemble.of(networks)
    assert isinstance(together, Ensemble)
    assert torch.equal(together(rows), torch.stack([network(rows) for network in networks]))


@pytest.mark.parametrize("tau", [0.25, 1.0])
def test_targets_follow(tau: float) -> None:
    trained = Ensemble.of(members(2))
    target = target_of(trained)
    assert not any(parameter.requires_grad for parameter in target.parameters())
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(1.0)
    before = [parameter.clone() for parameter in target.parameters()]
    Follow([trained], [target], tau)()
    for old, new in zip(before, target.parameters(), strict=True):
        torch.testing.assert_close(new, old + tau)


def test_a_dict_observation_gets_one_more_part() -> None:
    observation = spaces.Dict({"a": spaces.Box(-1, 1, (1,)), "b": spaces.Discrete(2)})
    assert set(space_with_action(observation, spaces.Box(-1, 1, (2,))).spaces) == {"a", "b", "action"}
    assert set(SPACE.spaces) == {"observation", "action"}
    assert set(with_action({"a": torch.zeros(1, 1), "b": torch.zeros(1)}, torch.zeros(1, 2))) == {"a", "b", "action"}


@pytest.mark.parametrize("unit", [True, False])
def test_residual_networks_together_are_what_each_is_by_itself(unit: bool) -> None:
    config = ResidualMLPConfig(width=6, blocks=2, expansion=2, unit_weights=unit)
    networks = [ResidualMLP(config, SPACE, 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    together = Ensemble.of(networks)
    assert isinstance(together, BatchedResidualMLP)
    optimizers = [torch.optim.SGD([*network.parameters()], lr=0.1) for network in (*networks, together)]
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        seen = with_action(torch.randn(9, 3, generator=generator), torch.randn(9, 2, generator=generator))
        weight = torch.randn(9, 4, generator=generator)
        alone = torch.stack([network(seen) for network in networks])
        torch.testing.assert_close(together(seen), alone, rtol=1e-3, atol=1e-4)
        for network in (*networks, together):
            (network(seen) * weight).sum().backward()
        for network, optimizer in zip((*networks, together), optimizers, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            projection(network)()
    for network in (*networks, together):
        network.eval()
    torch.testing.assert_close(together(seen), torch.stack([network(seen) for network in networks]), rtol=1e-3, atol=1e-3)
    assert len(mode_dependent(together)) == 5


def test_residual_networks_of_one_group_together_see_that_group() -> None:
    config, group = ResidualMLPConfig(width=6, blocks=1, expansion=2), spaces.Box(-1, 1, (3,), np.float32)
    single = space_with_action(group, spaces.Box(-1, 1, (2,), np.float32))
    networks = [ResidualMLP(config, single, 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    readers = [reads_group(network, "critic", ["action"]) for network in networks]
    seen, action = {"actor": torch.randn(9, 5), "critic": torch.randn(9, 3)}, torch.randn(9, 2)
    alone = torch.stack([network(with_action(seen["critic"], action)) for network in networks])
    together = Ensemble.of(readers)
    assert isinstance(together, GroupReader)
    torch.testing.assert_close(together(with_action(seen, action)), alone, rtol=1e-3, atol=1e-4)

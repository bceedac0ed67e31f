"""Acting in NumPy is acting in torch: the same networks, the same random numbers, the same actions but for roundings."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from etude.acting.host import HostActor
from etude.acting.policy import ActorPolicy
from etude.components.distributions import ActionHead, DeterministicHead, SquashedGaussianHead
from etude.components.networks.mlp import MLP, MLPConfig
from etude.components.normalizers import ObservationNormalizer
from etude.workflows.base import Mode

ACTIONS = spaces.Box(np.array([-2.0, 0.0, -1.0], np.float32), np.array([2.0, 4.0, 0.5], np.float32))
OBSERVATIONS = spaces.Box(-3, 3, (5,))


def _policies(head: ActionHead, scaling: str = "off", activation: str = "relu") -> tuple[ActorPolicy, ActorPolicy]:
    config = MLPConfig(hidden_dims=(16, 16), activation=activation)  # type: ignore[arg-type] # one of its names
    actor = MLP(config, OBSERVATIONS, head.size, generator=torch.Generator().manual_seed(1))
    normalizer = ObservationNormalizer(OBSERVATIONS, scaling)  # type: ignore[arg-type] # one of its names
    return tuple(  # type: ignore[return-value] # two of them
        ActorPolicy(normalizer, actor, head, space, with_log_prob=False) for space in (OBSERVATIONS, None)
    )


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("mode", ["explore", "sample", "greedy"])
@pytest.mark.parametrize("scaling", ["off", "static"])
@pytest.mark.parametrize("make", [SquashedGaussianHead, DeterministicHead])
def test_the_same_actions_from_the_same_stream(make: type[ActionHead], scaling: str, mode: Mode, rows: int) -> None:
    on_host, in_torch = _policies(make(ACTIONS), scaling, "relu" if rows == 1 else "tanh")  # type: ignore[call-arg]
    assert on_host._on_host is not None
    assert in_torch._on_host is None
    streams = [torch.Generator().manual_seed(7) for _ in range(2)]
    first = torch.ones(rows, dtype=torch.bool)
    with torch.no_grad():
        for _ in range(5):
            observation = torch.randn(rows, 5, generator=torch.Generator().manual_seed(3))
            pair = [
                policy.act(observation, None, first, mode=mode, generator=stream)
                for policy, stream in zip((on_host, in_torch), streams, strict=True)
            ]
            torch.testing.assert_close(pair[0].action, pair[1].action)
            torch.testing.assert_close(pair[0].extras["sample"], pair[1].extras["sample"])
            assert pair[0].action.dtype == torch.float32
    assert torch.equal(streams[0].get_state(), streams[1].get_state())


def test_what_training_changes_is_seen_at_once() -> None:
    on_host, in_torch = _policies(DeterministicHead(ACTIONS))
    observation, first = torch.randn(1, 5), torch.ones(1, dtype=torch.bool)
    with torch.no_grad():
        before = on_host.act(observation, None, first, mode="greedy", generator=torch.Generator()).action
        for parameter in on_host.parts.parameters():
            parameter.add_(0.3)
        after, expected = (
            policy.act(observation, None, first, mode="greedy", generator=torch.Generator()).action
            for policy in (on_host, in_torch)
        )
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize(
    ("space", "actor"),
    [
        (spaces.Box(0, 255, (5,), np.uint8), None),
        (spaces.Dict({"a": OBSERVATIONS}), None),
        (OBSERVATIONS, nn.Linear(5, 6)),
    ],
)
def test_what_numpy_could_not_repeat_stays_with_torch(space: gymnasium.Space, actor: nn.Module | None) -> None:
    head = SquashedGaussianHead(ACTIONS)
    actor = actor or MLP(MLPConfig(), space, head.size, generator=torch.Generator())
    assert HostActor.of(ObservationNormalizer(space, "off"), actor, head, space) is None
